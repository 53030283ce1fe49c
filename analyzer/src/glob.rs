//! Names by pattern: of our own, since millions of names meet some hundred patterns, and nothing is allocated for any.

/// Whether a pattern, in which `*` stands for anything and `?` for one character, is the whole text.
pub(crate) fn matches(pattern: &str, text: &str) -> bool {
    let (pattern, text) = (pattern.as_bytes(), text.as_bytes());
    // Where the last star was, and how much of the text it had taken.
    let (mut at, mut read, mut star) = (0, 0, None);
    while read < text.len() {
        match (pattern.get(at), star) {
            (Some(b'*'), _) => {
                star = Some((at, read));
                at += 1;
            }
            (Some(b'?'), _) => {
                at += 1;
                read += 1;
                // The other bytes of the same character.
                while text.get(read).is_some_and(|byte| byte & 0xc0 == 0x80) {
                    read += 1;
                }
            }
            (Some(one), _) if *one == text[read] => {
                at += 1;
                read += 1;
            }
            // The star takes one more.
            (_, Some((place, taken))) => {
                star = Some((place, taken + 1));
                at = place + 1;
                read = taken + 1;
            }
            _ => return false,
        }
    }
    pattern[at..].iter().all(|one| *one == b'*')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_stand_for_texts() {
        for (pattern, text, expected) in [
            ("*", "", true),
            ("", "", true),
            ("", "a", false),
            ("*gemm*", "sm90_gemm_f16", true),
            ("sm?0*", "sm90_gemm", true),
            ("gemm", "sgemm", false),
            ("gemm", "gemms", false),
            ("*a*b", "xaxbxb", true),
            ("*a*b", "xaxbx", false),
            ("a*a", "a", false),
            ("ü?", "üß", true),
            ("*?", "ß", true),
            ("??", "ß", false),
            ("*??", "ß", false),
            ("*?a", "ßßa", true),
        ] {
            assert_eq!(matches(pattern, text), expected, "{pattern} {text}");
        }
    }
}
