//! Numbers in JSON that come back to the last bit: a parser of decimals may round otherwise.

/// Numbers of 32 bits as one string of hex digits, 8 each, the most significant first.
pub(super) mod hex {
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub(in super::super) fn serialize<S: Serializer>(
        numbers: &[f32],
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        let digits = |number: &f32| format!("{:08x}", number.to_bits());
        serializer.serialize_str(&numbers.iter().map(digits).collect::<String>())
    }

    pub(in super::super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Vec<f32>, D::Error> {
        let text = String::deserialize(deserializer)?;
        let number = |digits: &[u8]| {
            let digits = std::str::from_utf8(digits).ok().filter(|digits| digits.len() == 8)?;
            u32::from_str_radix(digits, 16).ok().map(f32::from_bits)
        };
        let numbers: Option<Vec<f32>> = text.as_bytes().chunks(8).map(number).collect();
        numbers.ok_or_else(|| D::Error::custom("need numbers of 8 hex digits each"))
    }
}

/// A number of 64 bits as a string of the shortest decimal that means it.
pub(super) mod decimal {
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    pub(in super::super) fn serialize<S: Serializer>(
        number: &f64,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&number.to_string())
    }

    pub(in super::super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<f64, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
    }
}
