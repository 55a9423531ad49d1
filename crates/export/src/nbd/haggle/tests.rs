use io::VolumeInfo;

use super::*;

fn export() -> Export {
    Export {
        name: "disk".into(),
        description: "for tests".into(),
        info: VolumeInfo {
            size_bytes: 1 << 30,
            sector_bytes: 512,
            preferred_bytes: 4096,
            transfer_bytes_max: 1 << 20,
            read_only: false,
        },
        read_only: false,
        rotational: false,
    }
}

/// The replies in an answer: kind and data.
fn replies(mut bytes: &[u8], option: u32) -> Vec<(u32, Vec<u8>)> {
    let mut replies = Vec::new();
    while !bytes.is_empty() {
        assert_eq!(bytes[..8], OPTION_REPLY_MAGIC.to_be_bytes());
        assert_eq!(bytes[8..12], option.to_be_bytes());
        let kind = u32::from_be_bytes(bytes[12..16].try_into().unwrap());
        let (data, rest) = split_string(&bytes[16..]).expect("a reply is complete");
        replies.push((kind, data.to_vec()));
        bytes = rest;
    }
    replies
}

fn ask(haggler: &mut Haggler<'_>, option: u32, data: &[u8]) -> (Vec<(u32, Vec<u8>)>, Next) {
    let mut answer = Vec::new();
    let next = haggler.answer(option, data, &mut answer);
    (replies(&answer, option), next)
}

fn info_query(name: &str, kinds: &[u16]) -> Vec<u8> {
    let mut data = Vec::new();
    put_string(&mut data, name.as_bytes());
    data.extend_from_slice(&(kinds.len() as u16).to_be_bytes());
    kinds.iter().for_each(|kind| data.extend_from_slice(&kind.to_be_bytes()));
    data
}

fn context_query(name: &str, queries: &[&str]) -> Vec<u8> {
    let mut data = Vec::new();
    put_string(&mut data, name.as_bytes());
    data.extend_from_slice(&(queries.len() as u32).to_be_bytes());
    queries.iter().for_each(|query| put_string(&mut data, query.as_bytes()));
    data
}

#[test]
fn go_tells_size_flags_and_block_sizes_and_starts_transmission() {
    let export = export();
    let mut haggler = Haggler::new(&export, Security::None, true);
    let (replies, next) = ask(&mut haggler, option::GO, &info_query("disk", &[1, 2, 3]));
    assert_eq!(next, Next::Transmit);
    let kinds: Vec<u16> = replies
        .iter()
        .filter(|(kind, _)| *kind == option_reply::INFO)
        .map(|(_, data)| u16::from_be_bytes([data[0], data[1]]))
        .collect();
    assert_eq!(kinds, [info::EXPORT, info::NAME, info::DESCRIPTION, info::BLOCK_SIZE]);
    assert_eq!(replies[0].1[2..10], (1_u64 << 30).to_be_bytes());
    assert_eq!(replies.last().unwrap().0, option_reply::ACK);
}

#[test]
fn an_unknown_name_is_refused_and_the_empty_one_is_the_export() {
    let export = export();
    let mut haggler = Haggler::new(&export, Security::None, true);
    let (replies, next) = ask(&mut haggler, option::GO, &info_query("other", &[]));
    assert_eq!((replies[0].0, next), (option_reply::ERR_UNKNOWN, Next::Option));
    assert_eq!(ask(&mut haggler, option::INFO, &info_query("", &[])).1, Next::Option);
    assert_eq!(haggler.answer(option::EXPORT_NAME, b"other", &mut Vec::new()), Next::End);
    let mut answer = Vec::new();
    assert_eq!(haggler.answer(option::EXPORT_NAME, b"", &mut answer), Next::Transmit);
    assert_eq!(answer.len(), 10);
}

#[test]
fn the_zeros_after_export_name_are_sent_unless_renounced() {
    let export = export();
    let mut haggler = Haggler::new(&export, Security::None, false);
    let mut answer = Vec::new();
    haggler.answer(option::EXPORT_NAME, b"disk", &mut answer);
    assert_eq!(answer.len(), 10 + 124);
}

#[test]
fn nothing_is_told_before_a_required_session_stands() {
    let export = export();
    let mut haggler = Haggler::new(&export, Security::Required, true);
    for option in [option::LIST, option::STRUCTURED_REPLY, 10_000] {
        let (replies, next) = ask(&mut haggler, option, &[]);
        assert_eq!((replies.len(), replies[0].0), (1, option_reply::ERR_TLS_REQD));
        assert_eq!(next, Next::Option);
    }
    let (replies, _) = ask(&mut haggler, option::GO, &info_query("disk", &[]));
    assert_eq!(replies[0].0, option_reply::ERR_TLS_REQD);
    assert_eq!(haggler.answer(option::EXPORT_NAME, b"disk", &mut Vec::new()), Next::End);
    assert_eq!(ask(&mut haggler, option::STARTTLS, &[1]).0[0].0, option_reply::ERR_INVALID);
    assert_eq!(ask(&mut haggler, option::STARTTLS, &[]).1, Next::StartTls);
}

#[test]
fn tls_is_refused_where_there_is_none_and_where_it_stands() {
    let export = export();
    let mut without = Haggler::new(&export, Security::None, true);
    assert_eq!(ask(&mut without, option::STARTTLS, &[]).0[0].0, option_reply::ERR_UNSUP);
    let mut within = Haggler::new(&export, Security::Active, true);
    assert_eq!(ask(&mut within, option::STARTTLS, &[]).0[0].0, option_reply::ERR_INVALID);
}

#[test]
fn contexts_are_listed_by_namespace_and_selected_by_name() {
    let export = export();
    let mut haggler = Haggler::new(&export, Security::None, true);
    let list = option::LIST_META_CONTEXT;
    let (replies, _) = ask(&mut haggler, list, &context_query("disk", &[]));
    assert_eq!(replies[0].0, option_reply::ERR_INVALID, "structured replies come first");
    ask(&mut haggler, option::STRUCTURED_REPLY, &[]);
    let names = |replies: Vec<(u32, Vec<u8>)>| -> Vec<String> {
        let contexts = replies.into_iter().filter(|(kind, _)| *kind == option_reply::META_CONTEXT);
        contexts.map(|(_, data)| String::from_utf8(data[4..].to_vec()).unwrap()).collect()
    };
    let all = names(ask(&mut haggler, list, &context_query("", &[])).0);
    assert_eq!(all, ["base:allocation", "bimetal:tier", "bimetal:dirty", "bimetal:heat"]);
    let some = names(ask(&mut haggler, list, &context_query("", &["bimetal:"])).0);
    assert_eq!(some, ["bimetal:tier", "bimetal:dirty", "bimetal:heat"]);
    let set = option::SET_META_CONTEXT;
    let (selected, _) = ask(&mut haggler, set, &context_query("disk", &["qemu:x", "bimetal:tier"]));
    assert_eq!(selected[0].1[..4], 2_u32.to_be_bytes());
    assert_eq!(names(selected), ["bimetal:tier"]);
    assert!(haggler.contexts.any());
    ask(&mut haggler, set, &context_query("disk", &["base:"]));
    assert!(!haggler.contexts.any(), "a new selection replaces the old one");
}

#[test]
fn malformed_data_is_refused_and_never_believed() {
    let export = export();
    let mut haggler = Haggler::new(&export, Security::None, true);
    ask(&mut haggler, option::STRUCTURED_REPLY, &[]);
    let mut long_name = info_query("disk", &[]);
    long_name[..4].copy_from_slice(&u32::MAX.to_be_bytes());
    let mut many_kinds = info_query("disk", &[1]);
    many_kinds[8..10].copy_from_slice(&u16::MAX.to_be_bytes());
    for data in [&[][..], &[0; 3], &long_name, &many_kinds] {
        assert_eq!(ask(&mut haggler, option::GO, data).0[0].0, option_reply::ERR_INVALID);
    }
    let mut many_queries = context_query("disk", &["base:allocation"]);
    many_queries[8..12].copy_from_slice(&u32::MAX.to_be_bytes());
    let mut trailing = context_query("disk", &["base:allocation"]);
    trailing.push(0);
    for data in [&many_queries, &trailing] {
        let (replies, _) = ask(&mut haggler, option::SET_META_CONTEXT, data);
        assert_eq!((replies.len(), replies[0].0), (1, option_reply::ERR_INVALID));
    }
}

#[test]
fn any_bytes_get_an_answer_of_complete_replies() {
    let export = export();
    let mut state = 88_172_645_463_325_252_u64;
    let mut random = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let good =
        [info_query("disk", &[3]), context_query("", &["base:allocation"]), b"disk".to_vec()];
    for round in 0..50_000_u64 {
        let security = [Security::None, Security::Offered, Security::Required, Security::Active]
            [(random() % 4) as usize];
        let mut haggler = Haggler::new(&export, security, true);
        haggler.structured = round.is_multiple_of(2);
        let option = (random() % 14) as u32;
        let mut data = good[(random() % 3) as usize].clone();
        for _ in 0..random() % 4 {
            if !data.is_empty() {
                let at = random() as usize % data.len();
                data[at] = random() as u8;
            }
        }
        data.truncate(random() as usize % (data.len() + 8));
        if option != option::EXPORT_NAME {
            let (replies, next) = ask(&mut haggler, option, &data);
            assert!(!replies.is_empty());
            if next == Next::Transmit {
                assert_ne!(security, Security::Required);
            }
        }
    }
}
