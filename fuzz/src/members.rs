//! An object of JSON as serde_json reads it, with its members in their order, those that stand twice too, and each value as
//! the text that it was written as.

use std::borrow::Cow;
use std::fmt;

use serde_json::value::RawValue;

/// The members of an object.
#[derive(Debug)]
pub struct Members<'a>(pub Vec<(Cow<'a, str>, &'a RawValue)>);

impl<'de> serde::Deserialize<'de> for Members<'de> {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl<'de> serde::de::Visitor<'de> for Visitor {
            type Value = Members<'de>;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("an object")
            }

            fn visit_map<A: serde::de::MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry::<Cow<'de, str>, &'de RawValue>()? {
                    members.push(member);
                }
                Ok(Members(members))
            }
        }
        deserializer.deserialize_map(Visitor)
    }
}

impl<'a> Members<'a> {
    /// How often a member stands there.
    #[must_use]
    pub fn count(&self, key: &str) -> usize {
        self.0.iter().filter(|(name, _)| name == key).count()
    }

    /// The last member of that name.
    #[must_use]
    pub fn value(&self, key: &str) -> Option<&'a RawValue> {
        self.0
            .iter()
            .rev()
            .find(|(name, _)| name == key)
            .map(|(_, value)| *value)
    }

    /// The last member of that name as it is written; of a string what stands between its quotes.
    #[must_use]
    pub fn text(&self, key: &str) -> Option<&'a str> {
        let text = self.value(key)?.get();
        let inner = text.strip_prefix('"').and_then(|text| text.strip_suffix('"'));
        Some(inner.unwrap_or(text))
    }
}
