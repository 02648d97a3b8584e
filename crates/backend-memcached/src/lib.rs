//! memcached as a store of counters for Tollgate.
