//! What a copy's or a memset's name says: "Memcpy HtoD (Pinned -> Device)", "CopyHostToDevice", "Memset (Device)".

fn contains(name: &[u8], part: &[u8]) -> bool {
    name.windows(part.len()).any(|window| window == part)
}

/// `CUpti_ActivityMemcpyKind` (cupti_activity.h): 1 HtoD, 2 DtoH, 3 to 7 of arrays, 8 DtoD, 9 HtoH, 10 PtoP, 0 unknown.
pub(crate) fn copy_kind(name: &[u8]) -> u8 {
    const KINDS: &[(&[u8], u8)] = &[
        (b"HtoD", 1),
        (b"DtoH", 2),
        (b"DtoD", 8),
        (b"HtoH", 9),
        (b"HtoA", 3),
        (b"AtoH", 4),
        (b"AtoA", 5),
        (b"AtoD", 6),
        (b"DtoA", 7),
        (b"PtoP", 10),
        (b"P2P", 10),
        (b"Peer", 10),
        (b"HostToDevice", 1),
        (b"DeviceToHost", 2),
        (b"DeviceToDevice", 8),
        (b"HostToHost", 9),
        // Intel's: M is the host's memory.
        (b"M2D", 1),
        (b"D2M", 2),
        (b"D2D", 8),
    ];
    let found = KINDS.iter().find(|(part, _)| contains(name, part));
    found.map_or(0, |(_, kind)| *kind)
}

/// `CUpti_ActivityMemoryKind` of one of Kineto's words.
fn kind_of_word(word: &[u8]) -> u8 {
    match word.trim_ascii() {
        // ROCm's "Host" is said of pinned memory as of pageable.
        b"Pageable" => 1,
        b"Pinned" => 2,
        b"Device" => 3,
        b"Array" => 4,
        b"Managed" => 5,
        b"Device Static" => 6,
        b"Managed Static" => 7,
        _ => 0,
    }
}

/// Source and destination (the same, where only one is named).
pub(crate) fn memory_kind(name: &[u8]) -> (u8, u8) {
    let inside = name
        .iter()
        .position(|&byte| byte == b'(')
        .and_then(|open| name.get(open + 1..name.len().checked_sub(1)?))
        .unwrap_or_default();
    match inside.windows(2).position(|window| window == b"->") {
        Some(arrow) => (kind_of_word(&inside[..arrow]), kind_of_word(&inside[arrow + 2..])),
        None => (kind_of_word(inside), kind_of_word(inside)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_say_direction_and_memory() {
        let of = |name: &str| (copy_kind(name.as_bytes()), memory_kind(name.as_bytes()));
        assert_eq!(of("Memcpy HtoD (Pinned -> Device)"), (1, (2, 3)));
        assert_eq!(of("Memcpy DtoH (Device -> Pageable)"), (2, (3, 1)));
        assert_eq!(of("Memcpy DtoD (Device -> Device)"), (8, (3, 3)));
        assert_eq!(of("Memcpy PtoP (Device -> Device)"), (10, (3, 3)));
        assert_eq!(of("CopyDeviceToHost"), (2, (0, 0)));
        assert_eq!(of("Memset (Device)"), (0, (3, 3)));
        assert_eq!(of("("), (0, (0, 0)));
        assert_eq!(of(""), (0, (0, 0)));
    }
}
