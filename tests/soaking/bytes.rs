//! Damage to bytes of any file, and to text as text.

use crate::random::Random;

/// Damage as disks, copies and dying machines do it: the length stays.
pub fn damage(bytes: &mut [u8], random: &mut Random) {
    if bytes.is_empty() {
        return;
    }
    match random.below(6) {
        // Single bits, most of the time one.
        0..3 => {
            for _ in 0..*random.one_of(&[1, 1, 1, 2, 5]) {
                let at = random.below(bytes.len());
                bytes[at] ^= 1 << random.below(8);
            }
        }
        3 => {
            let at = random.below(bytes.len());
            bytes[at] = random.next() as u8;
        }
        // A hole, as power loss leaves it.
        4 => {
            let part = random.part(bytes.len(), 4096);
            bytes[part].fill(0);
        }
        // A piece that was written elsewhere.
        _ => {
            let part = random.part(bytes.len(), 512);
            let to = random.below(bytes.len() - part.len() + 1);
            bytes.copy_within(part, to);
        }
    }
}

/// Numbers at which something may go over.
const NUMBERS: &[&str] = &[
    "0",
    "-1",
    "1",
    "4294967295",
    "4294967296",
    "9223372036854775807",
    "9223372036854775808",
    "-9223372036854775808",
    "18446744073709551615",
    "18446744073709551616",
    "1e308",
    "-1e308",
    "1e999999999",
    "0.0000001",
    "NaN",
    "Infinity",
    "-0",
    "00",
    "1711964646000000.001",
    "123456789012345678901234567890",
];

/// Pieces of JSON that are odd where they come.
const PIECES: &[&str] = &[
    "null",
    "true",
    "[]",
    "{}",
    "\"\"",
    "\\u0000",
    "\\ud800",
    "\\",
    "\"",
    "{",
    "}",
    "[",
    "]",
    ",",
    ":",
    "\u{feff}",
    "\0",
    "\u{202e}",
    "\"ph\":\"X\",",
    "\"dur\":-5,",
    "\"args\":{\"args\":{}},",
    "\"tid\":[1],",
    "\"pid\":\"a b\",",
    "]}{\"traceEvents\":[",
    "\"name\":{\"a\":1},",
    "\r\n",
    "/*",
    "\"stream\":7,\"stream\":8,",
    "\"ts\":1e30,",
    "\"cat\":\"kernel\",",
];

/// Changes bytes as a fuzzer does: lengths too, with numbers and pieces that stand at borders. `other`: to take parts of.
pub fn mutate(bytes: &mut Vec<u8>, other: &[u8], random: &mut Random) {
    for _ in 0..=random.below(4) {
        let at = random.below(bytes.len() + 1);
        match random.below(10) {
            0 | 1 => damage(bytes, random),
            2 => insert(bytes, at, random.one_of(PIECES).as_bytes()),
            3 | 4 => replace_number(bytes, random),
            5 => {
                let part = random.part(bytes.len(), 200);
                bytes.drain(part);
            }
            6 => {
                let part = random.part(bytes.len(), 400);
                let copy = bytes[part].to_vec();
                insert(bytes, at, &copy);
            }
            7 => {
                let part = random.part(other.len(), 2000);
                insert(bytes, at, &other[part]);
            }
            8 => bytes.truncate(at),
            _ => {
                let many = 1 << random.below(14);
                let piece = random.one_of(&["[", "{\"a\":", "\"", "a", "9", " ", "\\\\"]);
                insert(bytes, at, piece.repeat(many).as_bytes());
            }
        }
    }
}

fn insert(bytes: &mut Vec<u8>, at: usize, piece: &[u8]) {
    let at = at.min(bytes.len());
    bytes.splice(at..at, piece.iter().copied());
}

/// Another number in the place of one.
fn replace_number(bytes: &mut Vec<u8>, random: &mut Random) {
    let from = random.below(bytes.len());
    let is_part = |byte: &u8| byte.is_ascii_digit() || matches!(byte, b'.' | b'-');
    let Some(start) = bytes[from..].iter().position(is_part).map(|at| from + at) else {
        return;
    };
    let length = bytes[start..].iter().take_while(|byte| is_part(byte)).count();
    let number = random.one_of(NUMBERS).bytes();
    bytes.splice(start..start + length, number);
}
