//! What calls cost, in the units that are billed.

/// Capacity units.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Units {
    /// For what was read.
    pub read: f64,
    /// For what was written, or would have been but for its condition.
    pub written: f64,
}

/// The same request, which asks for what it costs. Whoever checks its signature refuses it.
pub(super) fn ask(message: &[u8]) -> Vec<u8> {
    const ASK: &[u8] = br#""ReturnConsumedCapacity":"TOTAL","#;
    const LENGTH: &str = "content-length";
    let Some(head) = message.windows(4).position(|four| four == b"\r\n\r\n") else {
        return message.to_vec();
    };
    let (head, body) = (
        String::from_utf8_lossy(&message[..head]).into_owned(),
        &message[head + 4..],
    );
    if !body.starts_with(br#"{""#) {
        return message.to_vec();
    }
    let mut asking = Vec::with_capacity(message.len() + ASK.len());
    for line in head.lines() {
        let name = line.split(':').next().unwrap_or_default();
        if name.eq_ignore_ascii_case(LENGTH) {
            let length = body.len() + ASK.len();
            asking.extend(format!("{LENGTH}: {length}").bytes());
        } else {
            asking.extend(line.bytes());
        }
        asking.extend(b"\r\n");
    }
    asking.extend(b"\r\n{");
    asking.extend(ASK);
    asking.extend(&body[1..]);
    asking
}

/// What the answer to a request says that it cost. A write that its condition refused is billed as if
/// it had been made, which the answer does not say: a unit for each KB that comes back.
pub(super) fn told(operation: &str, reply: &[u8]) -> Units {
    let text = String::from_utf8_lossy(reply);
    let refused = text.contains("ConditionalCheckFailedException");
    let units = if refused {
        let body = text.split("\r\n\r\n").nth(1).unwrap_or_default();
        body.len().div_ceil(1024) as f64
    } else {
        let after = text.split(r#""CapacityUnits":"#).nth(1).unwrap_or_default();
        let number = after.split([',', '}']).next().unwrap_or_default();
        number.trim().parse().unwrap_or(0.0)
    };
    match operation {
        "GetItem" => Units {
            read: units,
            written: 0.0,
        },
        _ => Units {
            read: 0.0,
            written: units,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_that_asks_is_otherwise_the_same() {
        let request = b"POST / HTTP/1.1\r\nContent-Length: 11\r\nX: y\r\n\r\n{\"Key\":\"k\"}";
        let asking = String::from_utf8(ask(request)).unwrap_or_default();
        let (head, body) = asking.split_once("\r\n\r\n").unwrap_or_default();
        assert_eq!(body, r#"{"ReturnConsumedCapacity":"TOTAL","Key":"k"}"#);
        assert_eq!(
            head,
            format!("POST / HTTP/1.1\r\ncontent-length: {}\r\nX: y", body.len())
        );
    }

    #[test]
    fn what_an_answer_tells_is_counted() {
        let answer =
            b"HTTP/1.1 200 OK\r\n\r\n{\"ConsumedCapacity\":{\"CapacityUnits\":2.0,\"T\":\"t\"}}";
        let one = |read, written| Units { read, written };
        assert_eq!(told("UpdateItem", answer), one(0.0, 2.0));
        assert_eq!(told("GetItem", answer), one(2.0, 0.0));
        let refused = b"HTTP/1.1 400 Bad\r\n\r\n{\"__type\":\"a#ConditionalCheckFailedException\"}";
        assert_eq!(told("UpdateItem", refused), one(0.0, 1.0));
    }
}
