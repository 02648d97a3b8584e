//! Phone numbers in one form, E.164.

use std::str::FromStr;

use phonenumber::Mode;
use phonenumber::country::Id;

/// The longest text that is looked at: more than any way of writing a number.
const LONGEST: usize = 64;

/// The country whose numbers may be written without a country code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Region(Id);

impl FromStr for Region {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        text.parse().map(Self).map_err(|_| {
            "write the two capital letters of a country, such as DE or US (ISO 3166)".into()
        })
    }
}

/// The number as `+491701234567`. `None`: it is none, or has no country code and no region stands
/// in for it.
pub(super) fn normalised(number: &[u8], region: Option<Region>) -> Option<String> {
    let text = std::str::from_utf8(number).ok()?.trim();
    if text.len() > LONGEST {
        return None;
    }
    let number = phonenumber::parse(region.map(|Region(id)| id), text).ok()?;
    // An extension is another phone behind the same number: it is left out, as E.164 has none.
    number
        .is_valid()
        .then(|| number.format().mode(Mode::E164).to_string())
        .map(|text| text.split(';').next().unwrap_or_default().to_owned())
}
