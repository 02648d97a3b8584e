//! DynamoDB as a store of counters for Tollgate.
