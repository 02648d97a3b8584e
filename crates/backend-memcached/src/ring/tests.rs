use std::collections::BTreeMap;

use super::*;

fn address(text: &str) -> Address {
    let (host, port) = text.rsplit_once(':').unwrap();
    Address {
        host: host.into(),
        port: port.parse().unwrap(),
    }
}

const SERVERS: [&str; 4] = [
    "10.0.1.1:11211",
    "10.0.1.2:11211",
    "10.0.1.3:11212",
    "cache.example:11300",
];

fn ring(servers: &[&str]) -> Ring {
    Ring::new(&servers.iter().copied().map(address).collect::<Vec<_>>())
}

/// Worked out by hand of another language, from nothing but the rule.
#[test]
fn keys_are_where_every_ketama_has_them() {
    let ring = ring(&SERVERS);
    assert_eq!(ring.0.len(), 4 * 160);
    let first: Vec<_> = ring.0[..4].to_vec();
    let right = [
        (14_164_473, 1),
        (16_012_927, 1),
        (17_349_376, 0),
        (20_424_420, 0),
    ];
    assert_eq!(first, right);
    for (key, server) in [
        ("a", 2),
        ("b", 1),
        ("foo", 3),
        ("bar", 2),
        ("hello", 1),
        ("tollgate:v1:login:K9gGyX8OAK8aH8Myj6djqQ", 2),
        ("key:1", 2),
        ("key:2", 3),
        ("key:3", 2),
        ("key:4", 1),
        // Beyond the last point, which is the third server's.
        ("w2740", 1),
    ] {
        assert_eq!(ring.server(key), server, "{key}");
    }
}

#[test]
fn a_second_way_to_work_it_out_agrees() {
    let ring = ring(&SERVERS);
    for n in 0..2_000 {
        let key = format!("tollgate:v1:p:{n}");
        assert_eq!(ring.server(&key), by_looking_at_all(&key), "{key}");
    }
}

/// No ring, no search: the smallest distance upwards from the key's hash to any point.
fn by_looking_at_all(key: &str) -> usize {
    let number = |digest: [u32; 4], part: usize| digest[part];
    let hash = number(md5_again(key.as_bytes()), 0);
    let mut nearest = (u32::MAX, 0);
    for (index, server) in SERVERS.iter().enumerate() {
        let name = server.strip_suffix(":11211").unwrap_or(server);
        for n in 0..40 {
            let digest = md5_again(format!("{name}-{n}").as_bytes());
            for part in 0..4 {
                let distance = number(digest, part).wrapping_sub(hash);
                nearest = nearest.min((distance, index));
            }
        }
    }
    nearest.1
}

/// MD5 (RFC 1321) as four little-endian words, for texts below 56 bytes.
fn md5_again(text: &[u8]) -> [u32; 4] {
    const TURNS: [[u32; 4]; 4] = [
        [7, 12, 17, 22],
        [5, 9, 14, 20],
        [4, 11, 16, 23],
        [6, 10, 15, 21],
    ];
    assert!(text.len() < 56);
    let mut block = [0_u8; 64];
    block[..text.len()].copy_from_slice(text);
    block[text.len()] = 0x80;
    block[56..].copy_from_slice(&(text.len() as u64 * 8).to_le_bytes());
    let word = |i: usize| u32::from_le_bytes(block[i * 4..i * 4 + 4].try_into().unwrap());
    let start = [0x6745_2301_u32, 0xefcd_ab89, 0x98ba_dcfe, 0x1032_5476];
    let [mut a, mut b, mut c, mut d] = start;
    for i in 0..64 {
        let (mixed, at) = match i / 16 {
            0 => (b & c | !b & d, i),
            1 => (d & b | !d & c, 5 * i + 1),
            2 => (b ^ c ^ d, 3 * i + 5),
            _ => (c ^ (b | !d), 7 * i),
        };
        let sine = ((i as f64 + 1.0).sin().abs() * 4_294_967_296.0) as u32;
        let sum = a
            .wrapping_add(mixed)
            .wrapping_add(sine)
            .wrapping_add(word(at % 16));
        let turned = b.wrapping_add(sum.rotate_left(TURNS[i / 16][i % 4]));
        (a, d, c, b) = (d, c, b, turned);
    }
    let end = [a, b, c, d];
    std::array::from_fn(|i| start[i].wrapping_add(end[i]))
}

#[test]
fn the_order_of_the_servers_makes_no_difference() {
    let ring_of = |order: &[usize]| {
        let servers: Vec<_> = order.iter().map(|i| SERVERS[*i]).collect();
        let ring = ring(&servers);
        move |key: &str| servers[ring.server(key)]
    };
    let one = ring_of(&[0, 1, 2, 3]);
    for order in [[3, 2, 1, 0], [1, 3, 0, 2], [2, 0, 3, 1]] {
        let other = ring_of(&order);
        for n in 0..2_000 {
            let key = format!("k{n}");
            assert_eq!(one(&key), other(&key), "{key}");
        }
    }
}

#[test]
fn a_server_less_moves_its_own_keys_and_no_others() {
    let five: Vec<_> = (1..=5).map(|n| format!("10.0.2.{n}:11211")).collect();
    let five: Vec<&str> = five.iter().map(String::as_str).collect();
    let (before, after) = (ring(&five), ring(&five[..4]));
    let mut owned: BTreeMap<usize, u32> = BTreeMap::new();
    for n in 0..10_000 {
        let key = format!("tollgate:v1:p:{n}");
        let server = before.server(&key);
        *owned.entry(server).or_default() += 1;
        if server < 4 {
            assert_eq!(after.server(&key), server, "{key}");
        }
    }
    // A fifth each, about.
    assert!(
        owned.values().all(|n| (1_400..=2_600).contains(n)),
        "{owned:?}"
    );
    assert_eq!(ring(&five[..1]).server("k"), 0);
}
