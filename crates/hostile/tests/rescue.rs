//! What is rescued of damaged volumes with random pasts is right.

use hostile::damage::rescue_from_past;

#[test]
fn a_rescue_gives_what_was_last_written_or_an_error_whatever_the_past() {
    let (mut right, mut all, mut in_part) = (0, 0, 0);
    for seed in 0..90 {
        let tried = rescue_from_past(seed).unwrap_or_else(|why| panic!("{why}"));
        right += tried.rescued.right;
        all += tried.rescued.all;
        in_part += tried.extents_in_part;
    }
    println!("{right} of {all} blocks came back; {in_part} extents were in part");
    // Something is lost, and something comes back: else nothing was tried.
    assert!(right > all / 20 && right < all, "{right} of {all}");
    assert!(in_part > 0, "no extent had its blocks on both drives");
}
