//! A client's address as an identity: networks, not single IPv6 addresses.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// How much of an address is one client: so many leading bits.
///
/// One IPv6 customer has at least a /64 and can walk through it, so that is one client by default;
/// an IPv4 address is one. An IPv4 address written as IPv6 (`::ffff:1.2.3.4`, however it is
/// spelled) is the IPv4 address, and so is one behind the well-known NAT64 prefix
/// (`64:ff9b::/96`) or of 6to4 (`2002::/16`, which holds one IPv4 address's whole network).
///
/// ```
/// use tollgate_http::AddressPrefixes;
///
/// let prefixes = AddressPrefixes::default();
/// let key = |text: &str| prefixes.client_key(text.parse().unwrap());
/// assert_eq!(key("203.0.113.9"), "203.0.113.9");
/// assert_eq!(key("::ffff:cb00:7109"), "203.0.113.9");
/// assert_eq!(key("2001:DB8:1:2:0:0:0:1"), "2001:db8:1:2::/64");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddressPrefixes {
    v4: u8,
    v6: u8,
}

impl AddressPrefixes {
    /// So many bits of an IPv4 address and of an IPv6 address.
    ///
    /// # Errors
    /// IPv4 has 1 to 32, IPv6 1 to 128.
    pub const fn new(v4: u8, v6: u8) -> Result<Self, PrefixError> {
        if v4 == 0 || v4 > 32 {
            return Err(PrefixError::V4(v4));
        }
        if v6 == 0 || v6 > 128 {
            return Err(PrefixError::V6(v6));
        }
        Ok(Self { v4, v6 })
    }

    /// The text that stands for all addresses of one client: the address itself where the prefix
    /// is its full length, else the network.
    #[must_use]
    pub fn client_key(self, address: IpAddr) -> String {
        if let Some((text, length)) = self.single_v4(address) {
            let text = std::str::from_utf8(&text[..length]);
            return text.expect("digits and dots").to_owned();
        }
        match unwrapped(address) {
            IpAddr::V4(address) => {
                let network = address.to_bits() & (u32::MAX << (32 - self.v4));
                format!("{}/{}", Ipv4Addr::from_bits(network), self.v4)
            }
            IpAddr::V6(address) if self.v6 == 128 => address.to_string(),
            IpAddr::V6(address) => {
                let network = address.to_bits() & (u128::MAX << (128 - self.v6));
                format!("{}/{}", Ipv6Addr::from_bits(network), self.v6)
            }
        }
    }
}

impl AddressPrefixes {
    /// The same text for an IPv4 address that is a client by itself, without an allocation.
    pub(crate) fn single_v4(self, address: IpAddr) -> Option<([u8; 16], usize)> {
        let IpAddr::V4(address) = unwrapped(address) else {
            return None;
        };
        if self.v4 != 32 {
            return None;
        }
        let (mut text, mut length) = ([0; 16], 0);
        for octet in address.octets() {
            let (digits, count) = OCTETS[usize::from(octet)];
            text[length..length + 4].copy_from_slice(&digits);
            length += usize::from(count) + 1;
        }
        // There is no dot behind the last.
        Some((text, length - 1))
    }
}

/// The digits of each octet, a dot behind them, and how many they are.
static OCTETS: [([u8; 4], u8); 256] = octets();

const fn octets() -> [([u8; 4], u8); 256] {
    let mut all = [([b'.'; 4], 0); 256];
    let mut octet = 0;
    while octet < all.len() {
        let (hundreds, tens, ones) = (octet / 100, octet / 10 % 10, octet % 10);
        let [hundreds, tens, ones] = [b'0' + hundreds as u8, b'0' + tens as u8, b'0' + ones as u8];
        all[octet] = match octet {
            0..10 => ([ones, b'.', b'.', b'.'], 1),
            10..100 => ([tens, ones, b'.', b'.'], 2),
            _ => ([hundreds, tens, ones, b'.'], 3),
        };
        octet += 1;
    }
    all
}

/// IPv4 addresses one by one, IPv6 by /64.
impl Default for AddressPrefixes {
    fn default() -> Self {
        Self { v4: 32, v6: 64 }
    }
}

/// The IPv4 address inside a mapped, translated or 6to4 IPv6 address, else the address as it is.
pub(crate) fn unwrapped(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V6(v6) => match v6.segments() {
            [0, 0, 0, 0, 0, 0xffff, ..] | [0x64, 0xff9b, 0, 0, 0, 0, ..] => {
                let [.., a, b, c, d] = v6.octets();
                IpAddr::V4(Ipv4Addr::new(a, b, c, d))
            }
            [0x2002, ..] => {
                let [_, _, a, b, c, d, ..] = v6.octets();
                IpAddr::V4(Ipv4Addr::new(a, b, c, d))
            }
            _ => address,
        },
        IpAddr::V4(_) => address,
    }
}

/// A prefix that no address has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PrefixError {
    /// Of IPv4.
    #[error("IPv4 prefix: {0} is not 1 to 32; 32 counts each address by itself")]
    V4(u8),
    /// Of IPv6.
    #[error("IPv6 prefix: {0} is not 1 to 128; 64 counts each network by itself")]
    V6(u8),
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(prefixes: AddressPrefixes, addresses: &[&str]) -> Vec<String> {
        addresses
            .iter()
            .map(|text| prefixes.client_key(text.parse().unwrap()))
            .collect()
    }

    #[test]
    fn b96_ipv4_mapped_is_the_ipv4_address_in_every_spelling() {
        assert_eq!(
            keys(
                AddressPrefixes::default(),
                &[
                    "::ffff:1.2.3.4",
                    "::ffff:102:304",
                    "1.2.3.4",
                    "::ffff:1.2.3.5",
                    "2001:db8:1234:5678::1.2.3.4",
                ],
            ),
            [
                "1.2.3.4",
                "1.2.3.4",
                "1.2.3.4",
                "1.2.3.5",
                "2001:db8:1234:5678::/64"
            ]
        );
    }

    #[test]
    fn a_single_address_is_the_same_text_without_an_allocation() {
        let prefixes = AddressPrefixes::default();
        for bits in (0..=u32::MAX)
            .step_by(65_521)
            .chain([u32::MAX, 0x0A64_6363])
        {
            let address = IpAddr::V4(Ipv4Addr::from_bits(bits));
            let (text, length) = prefixes.single_v4(address).unwrap();
            assert_eq!(&text[..length], address.to_string().as_bytes());
        }
        let network = AddressPrefixes::new(24, 64).unwrap();
        assert!(network.single_v4([203, 0, 113, 9].into()).is_none());
        assert!(prefixes.single_v4("2001:db8::1".parse().unwrap()).is_none());
    }

    #[test]
    fn b97_ipv6_is_counted_by_network() {
        let addresses = [
            "2001:db8:1:2::1",
            "2001:DB8:1:2:0:0:0:1",
            "2001:db8:1:2:ffff:ffff:ffff:ffff",
            "2001:db8:1:3::1",
        ];
        let by = |bits| keys(AddressPrefixes::new(32, bits).unwrap(), &addresses);
        let same = |bits, a: usize, b: usize| by(bits)[a] == by(bits)[b];
        assert!(same(64, 0, 1) && same(64, 0, 2) && !same(64, 0, 3));
        assert!(same(56, 0, 3) && by(56)[0] == "2001:db8:1::/56");
        assert!(same(128, 0, 1) && !same(128, 0, 2));
    }

    #[test]
    fn b98_nat64_and_6to4_are_their_ipv4_and_loopbacks_are_not_merged() {
        assert_eq!(
            keys(
                AddressPrefixes::default(),
                &[
                    "64:ff9b::808:808",
                    "64:ff9b::909:909",
                    "::1",
                    "127.0.0.1",
                    "2002:c000:204::1"
                ],
            ),
            ["8.8.8.8", "9.9.9.9", "::/64", "127.0.0.1", "192.0.2.4"]
        );
    }

    #[test]
    fn s77_prefixes_are_settable_and_checked() {
        let prefixes = AddressPrefixes::new(24, 48).unwrap();
        assert_eq!(
            keys(
                prefixes,
                &["203.0.113.9", "::ffff:203.0.113.77", "2001:db8:1:2::1"]
            ),
            ["203.0.113.0/24", "203.0.113.0/24", "2001:db8:1::/48"]
        );
        assert_eq!(AddressPrefixes::new(0, 64), Err(PrefixError::V4(0)));
        assert_eq!(AddressPrefixes::new(33, 64), Err(PrefixError::V4(33)));
        assert_eq!(AddressPrefixes::new(32, 0), Err(PrefixError::V6(0)));
        assert_eq!(AddressPrefixes::new(32, 129), Err(PrefixError::V6(129)));
    }
}
