//! Which of a daemon's addresses are tried first: those in preferred networks, such as the fast one of a cluster.

use std::net::IpAddr;

use iov_types::{Error, Result};

/// Networks, the most preferred first; none: addresses are tried in the order in which they were told.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Networks(Vec<Network>);

/// All addresses whose first bits are those of this one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Network {
    address: IpAddr,
    bits: u8,
}

fn as_bits(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(four) => u128::from(u32::from(four)) << 96,
        IpAddr::V6(six) => u128::from(six),
    }
}

impl Network {
    fn parse(text: &str) -> Result<Network> {
        let wrong =
            |why: String| Error::invalid(format!("{text:?} is no network, as in 10.1.0.0/16 or fd00::/8: {why}"));
        let (address, bits) = text.split_once('/').unwrap_or((text, ""));
        let address: IpAddr = address.parse().map_err(|_| wrong(format!("{address:?} is no address")))?;
        let most = if address.is_ipv4() { 32 } else { 128 };
        let bits = match bits {
            // One address.
            "" if !text.contains('/') => most,
            bits => bits.parse().ok().filter(|bits| *bits <= most).ok_or_else(|| {
                wrong(format!("behind the slash comes the number of bits that all have in common, 0 to {most}"))
            })?,
        };
        Ok(Network { address, bits })
    }

    fn has(&self, address: IpAddr) -> bool {
        let differ = as_bits(self.address) ^ as_bits(address);
        self.address.is_ipv4() == address.is_ipv4() && differ.leading_zeros() >= u32::from(self.bits)
    }
}

impl Networks {
    /// Reads `10.1.0.0/16,fd00::/8`; nothing is none.
    pub fn parse(text: &str) -> Result<Networks> {
        let parts = text.split(',').map(str::trim).filter(|part| !part.is_empty());
        parts.map(Network::parse).collect::<Result<_>>().map(Networks)
    }

    /// Whether nothing is preferred.
    pub(crate) fn is_none(&self) -> bool {
        self.0.is_empty()
    }

    /// The place of an address among them: that of the first network that it is in, or behind all.
    pub(crate) fn rank(&self, address: IpAddr) -> usize {
        self.0.iter().position(|network| network.has(address)).unwrap_or(self.0.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_ranked_by_the_first_network_that_has_them() {
        let networks = Networks::parse("10.1.0.0/16, fd00::/8,10.0.0.0/8,192.168.7.9").unwrap();
        let rank = |text: &str| networks.rank(text.parse().unwrap());
        assert_eq!([rank("10.1.255.3"), rank("fd12::1"), rank("10.2.0.1"), rank("192.168.7.9")], [0, 1, 2, 3]);
        for other in ["192.168.7.8", "11.0.0.1", "fe80::1", "::10.1.0.1", "127.0.0.1"] {
            assert_eq!(rank(other), 4, "{other}");
        }
        assert_eq!(Networks::parse("0.0.0.0/0").unwrap().rank("8.8.8.8".parse().unwrap()), 0);
        assert_eq!(Networks::parse("0.0.0.0/0").unwrap().rank("::1".parse().unwrap()), 1);
        assert_eq!(Networks::parse(" ").unwrap(), Networks::default());
    }

    #[test]
    fn what_is_no_network_is_told() {
        for wrong in ["ib0", "10.1.0.0/33", "10.1.0.0/", "fd00::/129", "10.1/16", "10.1.0.0/-1", "10.1.0.0/16/2"] {
            let e = Networks::parse(wrong).unwrap_err();
            assert!(e.detail().contains("is no network"), "{e}");
        }
    }
}
