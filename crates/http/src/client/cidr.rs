//! Networks, as trusted proxies and lists of clients name them.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

/// A network: `10.0.0.0/8`, `2001:db8::/32`, or one address.
///
/// An IPv4 address written as IPv6 is the IPv4 address.
///
/// ```
/// use tollgate_http::Cidr;
///
/// let network: Cidr = "10.0.0.0/8".parse()?;
/// assert!(network.contains("10.1.2.3".parse().unwrap()));
/// assert!(network.contains("::ffff:10.1.2.3".parse().unwrap()));
/// assert!(!network.contains("11.1.2.3".parse().unwrap()));
/// # Ok::<(), tollgate_http::CidrError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Cidr {
    network: IpAddr,
    prefix: u8,
}

impl Cidr {
    /// The network of `prefix` leading bits that `address` is in.
    ///
    /// # Errors
    /// IPv4 has at most 32 bits, IPv6 128.
    pub fn new(address: IpAddr, prefix: u8) -> Result<Self, CidrError> {
        let wrong = || CidrError(format!("{address}/{prefix}").into());
        let (address, prefix) = match (address, address.to_canonical()) {
            // `::ffff:10.0.0.0/104` is 10.0.0.0/8.
            (IpAddr::V6(_), v4 @ IpAddr::V4(_)) => (v4, prefix.checked_sub(96).ok_or_else(wrong)?),
            (_, address) => (address, prefix),
        };
        let network = masked(address, prefix).ok_or_else(wrong)?;
        Ok(Self { network, prefix })
    }

    /// Whether an address is in it.
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        address.is_ipv4() == self.network.is_ipv4()
            && masked(address, self.prefix) == Some(self.network)
    }
}

fn masked(address: IpAddr, prefix: u8) -> Option<IpAddr> {
    let prefix = u32::from(prefix);
    match address {
        IpAddr::V4(v4) => {
            let away = 32_u32.checked_sub(prefix)?;
            let mask = u32::MAX.checked_shl(away).unwrap_or(0);
            Some(IpAddr::V4((v4.to_bits() & mask).into()))
        }
        IpAddr::V6(v6) => {
            let away = 128_u32.checked_sub(prefix)?;
            let mask = u128::MAX.checked_shl(away).unwrap_or(0);
            Some(IpAddr::V6((v6.to_bits() & mask).into()))
        }
    }
}

impl FromStr for Cidr {
    type Err = CidrError;

    fn from_str(text: &str) -> Result<Self, CidrError> {
        let wrong = || CidrError(text.into());
        let (address, prefix) = match text.split_once('/') {
            Some((address, prefix)) if prefix.bytes().all(|b| b.is_ascii_digit()) => {
                (address, Some(prefix.parse().map_err(|_| wrong())?))
            }
            Some(_) => return Err(wrong()),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| wrong())?;
        let whole = if address.is_ipv4() { 32 } else { 128 };
        Self::new(address, prefix.unwrap_or(whole)).map_err(|_| wrong())
    }
}

impl fmt::Display for Cidr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.network, self.prefix)
    }
}

impl fmt::Debug for Cidr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Cidr({self})")
    }
}

/// Several networks.
///
/// ```
/// use tollgate_http::CidrSet;
///
/// let office = CidrSet::parse(["192.0.2.0/24", "2001:db8::/32"])?;
/// assert!(office.contains("192.0.2.7".parse().unwrap()));
/// # Ok::<(), tollgate_http::CidrError>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CidrSet(Vec<Cidr>);

impl CidrSet {
    /// Reads them.
    ///
    /// # Errors
    /// The first that is no network.
    pub fn parse<T: AsRef<str>>(texts: impl IntoIterator<Item = T>) -> Result<Self, CidrError> {
        texts
            .into_iter()
            .map(|text| text.as_ref().trim().parse())
            .collect::<Result<_, _>>()
            .map(Self)
    }

    /// Whether an address is in one of them.
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        self.0.iter().any(|network| network.contains(address))
    }

    /// Whether there are none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl FromIterator<Cidr> for CidrSet {
    fn from_iter<I: IntoIterator<Item = Cidr>>(networks: I) -> Self {
        Self(networks.into_iter().collect())
    }
}

/// Text that is no network.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("network: {0:?} is no address and no network; write 10.0.0.0/8 or 2001:db8::/32")]
pub struct CidrError(Box<str>);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_hold_what_they_say() {
        let has = |network: &str, address: &str| {
            let network: Cidr = network.parse().unwrap();
            network.contains(address.parse().unwrap())
        };
        assert!(has("0.0.0.0/0", "255.255.255.255") && !has("0.0.0.0/0", "::1"));
        assert!(has("::/0", "2001:db8::1") && !has("::/0", "10.0.0.1"));
        assert!(has("10.0.0.5", "10.0.0.5") && !has("10.0.0.5", "10.0.0.6"));
        assert!(has("10.1.2.3/8", "10.200.0.1"));
        assert!(has("::ffff:10.0.0.0/104", "10.9.9.9"));
        assert!(
            has("2001:db8::/33", "2001:db8:7fff::1") && !has("2001:db8::/33", "2001:db8:8000::1")
        );
        // The address inside 6to4 or NAT64 can be chosen by anybody: it is never trusted.
        assert!(!has("10.0.0.0/8", "2002:a00:5::1") && !has("10.0.0.0/8", "64:ff9b::a00:5"));
    }

    #[test]
    fn what_is_no_network_is_named() {
        for text in [
            "",
            "10.0.0.0/33",
            "::/129",
            "10.0.0/8",
            "10.0.0.0/",
            "10.0.0.0/+8",
            "x",
            "::ffff:1.2.3.4/8",
        ] {
            let error = text.parse::<Cidr>().unwrap_err().to_string();
            assert!(error.contains(&format!("{text:?}")), "{error}");
        }
    }
}
