//! Elliptic-curve keys as GnuTLS writes them, made right.
//!
//! The private number in an `EC PRIVATE KEY` has a fixed length, that of the curve's field
//! (RFC 5915). GnuTLS writes it like an integer: with a zero in front when the top bit is set,
//! and without zeros in front otherwise. So every other key that `certtool` makes would be refused
//! by the cryptographic library, which checks. The number is brought to its length here; anything
//! else about the key is left to the library.

/// Curves: the encoded object identifier, and the bytes of the private number.
const CURVES: [(&[u8], usize); 2] = [
    // prime256v1
    (&[0x06, 0x08, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07], 32),
    // secp384r1
    (&[0x06, 0x05, 0x2b, 0x81, 0x04, 0x00, 0x22], 48),
];

const SEQUENCE: u8 = 0x30;
const OCTET_STRING: u8 = 0x04;
/// The version of the structure, always 1, as it stands in front of the number.
const VERSION: [u8; 3] = [0x02, 0x01, 0x01];

/// The same key with its private number at the curve's length. `None`: this is not such a key, or
/// nothing needs to be changed.
pub(super) fn straighten(key: &[u8]) -> Option<Vec<u8>> {
    let (content, after) = split_element(key, SEQUENCE)?;
    let (number, rest) = split_element(content.strip_prefix(&VERSION)?, OCTET_STRING)?;
    let (_, length) =
        CURVES.iter().find(|(name, _)| rest.windows(name.len()).any(|window| window == *name))?;
    if !after.is_empty() || number.len() == *length {
        return None;
    }
    let zeros = number.iter().take_while(|byte| **byte == 0).count();
    let digits = &number[zeros..];
    let padding = length.checked_sub(digits.len())?;
    let mut octets = vec![0; padding];
    octets.extend_from_slice(digits);
    let inner = [&VERSION[..], &element(OCTET_STRING, &octets), rest].concat();
    Some(element(SEQUENCE, &inner))
}

/// Splits off the content of the element in front. Lengths up to 255, more than these keys have.
fn split_element(der: &[u8], tag: u8) -> Option<(&[u8], &[u8])> {
    let (length, rest) = match der.strip_prefix(&[tag])? {
        [0x81, length, rest @ ..] => (*length, rest),
        [length, rest @ ..] if *length < 0x80 => (*length, rest),
        _ => return None,
    };
    rest.split_at_checked(usize::from(length))
}

fn element(tag: u8, content: &[u8]) -> Vec<u8> {
    let length = content.len() as u8;
    let mut der = if length < 0x80 { vec![tag, length] } else { vec![tag, 0x81, length] };
    der.extend_from_slice(content);
    der
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(number: &[u8], curve: usize) -> Vec<u8> {
        let parameters = [&[0xa0, CURVES[curve].0.len() as u8], CURVES[curve].0].concat();
        let inner = [&VERSION[..], &element(OCTET_STRING, number), &parameters].concat();
        element(SEQUENCE, &inner)
    }

    #[test]
    fn a_private_number_is_brought_to_the_length_of_its_curve() {
        for (curve, length) in [(0, 32), (1, 48)] {
            let right = key(&vec![0xee; length], curve);
            let long = key(&[vec![0], vec![0xee; length]].concat(), curve);
            assert_eq!(straighten(&long), Some(right.clone()));
            assert_eq!(straighten(&right), None, "nothing to do");
            let short = key(&vec![0x7e; length - 1], curve);
            let padded = key(&[vec![0], vec![0x7e; length - 1]].concat(), curve);
            assert_eq!(straighten(&short), Some(padded));
        }
    }

    #[test]
    fn what_is_not_such_a_key_is_left_alone() {
        let good = key(&[0xee; 33], 0);
        assert_eq!(straighten(&good), None, "33 bytes of digits do not fit the curve");
        let long = key(&[vec![0], vec![0xee; 32]].concat(), 0);
        for cut in 0..long.len() {
            assert_eq!(straighten(&long[..cut]), None);
        }
        for at in 0..long.len() {
            let mut changed = long.clone();
            changed[at] ^= 0xff;
            // Whatever it says, it says it without a panic.
            let _ = straighten(&changed);
        }
    }
}
