//! Objects of JSON, written in one pass into one buffer: an answer under attack costs little.

/// Room for nearly every document.
const ROOM: usize = 512;

/// An object that is being written, in the form that `serde_json` gives it.
///
/// Members come with their name as it is written, `"limit":`.
pub(crate) struct Object(Vec<u8>);

impl Object {
    pub(crate) fn new() -> Self {
        let mut text = Vec::with_capacity(ROOM);
        text.push(b'{');
        Self(text)
    }

    /// Goes on with what [`begun`](Self::begun) gave.
    pub(crate) const fn after(begun: Vec<u8>) -> Self {
        Self(begun)
    }

    /// What is written so far: more may follow.
    pub(crate) fn begun(self) -> Vec<u8> {
        self.0
    }

    pub(crate) fn text(&mut self, name: &str, text: &str) {
        self.0.extend_from_slice(name.as_bytes());
        self.write_text(text);
        self.0.push(b',');
    }

    pub(crate) fn texts(&mut self, name: &str, texts: &[String]) {
        self.0.extend_from_slice(name.as_bytes());
        self.0.push(b'[');
        for (i, text) in texts.iter().enumerate() {
            if i > 0 {
                self.0.push(b',');
            }
            self.write_text(text);
        }
        self.0.extend_from_slice(b"],");
    }

    pub(crate) fn integer(&mut self, name: &str, number: u64) {
        self.0.extend_from_slice(name.as_bytes());
        let mut digits = itoa::Buffer::new();
        self.0.extend_from_slice(digits.format(number).as_bytes());
        self.0.push(b',');
    }

    pub(crate) fn null(&mut self, name: &str) {
        self.0.extend_from_slice(name.as_bytes());
        self.0.extend_from_slice(b"null,");
    }

    /// Seconds: `1.0`, `1.25`. All at once, as it is short.
    pub(crate) fn seconds<const NAME: usize>(&mut self, name: &[u8; NAME], micros: u64) {
        const SECOND: u64 = 1_000_000;
        let mut digits = itoa::Buffer::new();
        // Below a second, as many digits with another one before them.
        let below = micros < SECOND;
        let all = digits.format(micros + if below { SECOND } else { 0 });
        let split = all.as_bytes().split_last_chunk::<6>();
        let (whole, fraction) = split.expect("there are seven digits at least");
        let whole = if below { b"0" } else { whole };
        let zeros = fraction[1..].iter().rev().take_while(|it| **it == b'0');
        let (mut text, point) = ([b'.'; 40], NAME + whole.len());
        let end = point + 7 - zeros.count();
        text[..NAME].copy_from_slice(name);
        text[NAME..point].copy_from_slice(whole);
        text[point + 1..][..6].copy_from_slice(fraction);
        text[end] = b',';
        self.0.extend_from_slice(&text[..=end]);
    }

    /// The text of it, of which there is a member at least.
    pub(crate) fn finish(mut self) -> Vec<u8> {
        if let Some(comma) = self.0.last_mut() {
            *comma = b'}';
        }
        self.0
    }

    fn write_text(&mut self, text: &str) {
        // All bytes are looked at, as that is done many at a time.
        let special = |byte: &u8| matches!(byte, 0..=0x1f | b'"' | b'\\');
        if text.bytes().fold(false, |any, byte| any | special(&byte)) {
            return write(&mut self.0, text);
        }
        self.0.push(b'"');
        self.0.extend_from_slice(text.as_bytes());
        self.0.push(b'"');
    }
}

fn write<T: serde::Serialize + ?Sized>(text: &mut Vec<u8>, value: &T) {
    serde_json::to_writer(text, value).expect("texts and numbers always serialise");
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    fn seconds(micros: u64) -> String {
        let mut object = Object::new();
        object.seconds(b"\"s\":", micros);
        String::from_utf8(object.finish()).unwrap()
    }

    #[test]
    fn seconds_are_those_of_the_microseconds() {
        for (micros, text) in [
            (0, "0.0"),
            (1, "0.000001"),
            (999_990, "0.99999"),
            (1_000_000, "1.0"),
            (1_250_000, "1.25"),
            (1_517_867, "1.517867"),
            (1_918_540, "1.91854"),
            (1_753_881_172_000_010, "1753881172.00001"),
            (u64::MAX, "18446744073709.551615"),
        ] {
            assert_eq!(seconds(micros), format!("{{\"s\":{text}}}"));
        }
    }

    proptest! {
        #[test]
        fn any_microsecond_is_written_as_serde_json_does(micros in 1_000..1u64 << 53, shift in 0..43u32) {
            // Shorter ones have an exponent there.
            let micros = (micros >> shift).max(1_000);
            let number = micros as f64 / 1e6;
            prop_assert_eq!(seconds(micros), json!({"s": number}).to_string());
        }

        #[test]
        fn any_text_is_written_as_serde_json_does(texts in proptest::collection::vec(".*", 0..3), number: u64) {
            let mut object = Object::new();
            object.texts("\"a\":", &texts);
            object.text("\"b\":", &texts.concat());
            object.integer("\"c\":", number);
            object.null("\"d\":");
            let value = json!({"a": texts, "b": texts.concat(), "c": number, "d": Value::Null});
            prop_assert_eq!(String::from_utf8(object.finish()).unwrap(), value.to_string());
        }
    }
}
