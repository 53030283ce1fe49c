//! Names by pattern.

/// Whether a pattern, in which `*` stands for anything and `?` for one character, is the whole name.
pub(crate) fn matches(pattern: &str, name: &str) -> bool {
    let (pattern, name) = (pattern.as_bytes(), name.as_bytes());
    // Where the last star was, and how much of the name it had taken.
    let (mut at, mut read, mut star) = (0, 0, None);
    while read < name.len() {
        match (pattern.get(at), star) {
            (Some(b'*'), _) => {
                star = Some((at, read));
                at += 1;
            }
            (Some(one), _) if *one == b'?' || *one == name[read] => {
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
    fn a_pattern_is_the_whole_name() {
        for (pattern, name, expected) in [
            ("*gemm*", "simulated_sgemm_128x128_nn", true),
            ("relu", "relu_backward", false),
            ("relu?backward", "relu_backward", true),
            ("*", "", true),
            ("a*b*c", "axxbyyc", true),
            ("a*b*c", "axxbyy", false),
            ("a*b", "a_b_c", false),
            ("a?", "a", false),
            ("?*", "a", true),
            ("ab", "abc", false),
        ] {
            assert_eq!(matches(pattern, name), expected, "{pattern} {name}");
        }
        assert!(!matches(&"a*".repeat(40), &"a".repeat(39)));
        assert!(!matches(&format!("{}b", "a*".repeat(40)), &"a".repeat(1000)));
    }
}
