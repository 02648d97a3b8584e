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
        self.write_integer(number);
        self.0.push(b',');
    }

    pub(crate) fn null(&mut self, name: &str) {
        self.0.extend_from_slice(name.as_bytes());
        self.0.extend_from_slice(b"null,");
    }

    /// Seconds, of which most are whole microseconds.
    pub(crate) fn seconds(&mut self, name: &str, seconds: f64) {
        self.0.extend_from_slice(name.as_bytes());
        match as_micros(seconds) {
            Some(micros) => self.write_micros(micros),
            None => write(&mut self.0, &seconds),
        }
        self.0.push(b',');
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

    fn write_integer(&mut self, number: u64) {
        let mut digits = itoa::Buffer::new();
        self.0.extend_from_slice(digits.format(number).as_bytes());
    }

    /// `1.0`, `1.25`.
    fn write_micros(&mut self, micros: u64) {
        self.write_integer(micros / 1_000_000);
        let mut fraction = *b".000000";
        let mut rest = micros % 1_000_000;
        for digit in fraction[1..].iter_mut().rev() {
            *digit += (rest % 10) as u8;
            rest /= 10;
        }
        let zeros = fraction[2..].iter().rev().take_while(|it| **it == b'0');
        let end = fraction.len() - zeros.count();
        self.0.extend_from_slice(&fraction[..end]);
    }
}

fn write<T: serde::Serialize + ?Sized>(text: &mut Vec<u8>, value: &T) {
    serde_json::to_writer(text, value).expect("texts and numbers always serialise");
}

/// The number as microseconds, if its shortest form is theirs: two of them are never the same number
/// there, and it is written without an exponent.
fn as_micros(seconds: f64) -> Option<u64> {
    const LEAST: f64 = 0.001;
    const MOST: f64 = (1_u64 << 33) as f64;
    if !(LEAST..MOST).contains(&seconds) {
        return None;
    }
    let micros = (seconds * 1e6).round() as u64;
    (micros as f64 / 1e6 == seconds).then_some(micros)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    fn seconds(seconds: f64) -> String {
        let mut object = Object::new();
        object.seconds("\"s\":", seconds);
        String::from_utf8(object.finish()).unwrap()
    }

    #[test]
    fn seconds_are_written_as_serde_json_does() {
        let micros: [u64; 8] = [0, 1, 999, 1_000, 1_001, 999_999, 1_000_000, 1_250_000];
        let late: [u64; 3] = [
            1_753_881_172_000_000,
            8_589_934_591_999_999,
            8_589_934_592_000_001,
        ];
        let micros = micros.into_iter().chain(late).map(|it| it as f64 / 1e6);
        for number in micros.chain([0.1 + 0.2, 1e300, 1e-9, f64::MIN_POSITIVE, -1.5, 1.0 / 3.0]) {
            assert_eq!(seconds(number), json!({"s": number}).to_string());
        }
        assert_eq!(seconds(f64::NAN), r#"{"s":null}"#);
    }

    proptest! {
        #[test]
        fn any_microsecond_is_written_as_serde_json_does(micros in 0..1u64 << 54, shift in 0..54u32) {
            let number = (micros >> shift) as f64 / 1e6;
            prop_assert_eq!(seconds(number), json!({"s": number}).to_string());
            let wait = std::time::Duration::from_micros(micros >> shift).as_secs_f64();
            prop_assert_eq!(seconds(wait), json!({"s": wait}).to_string());
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
