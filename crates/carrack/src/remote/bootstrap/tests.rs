use super::*;

fn offer(programs: BootstrapPrograms) -> ProgramOffer {
    ProgramOffer::new(&SshHost { user: None, name: "h".into(), port: None }, programs, true).unwrap()
}

#[test]
fn the_start_is_one_word_for_any_shell() {
    let place = tempfile::tempdir().unwrap();
    let name = format!("carrack-{VERSION}-linux-x86_64");
    std::fs::write(place.path().join(name), "abc").unwrap();
    let command =
        offer(BootstrapPrograms::find(Some(place.path())).unwrap()).start_command(&["session".into()]);
    let words = shell_words::split(&command).unwrap();
    assert_eq!(words[..3], ["exec", "sh", "-c"]);
    assert_eq!(words[4..], ["carrack", "session"]);
    assert!(words[3].contains("\"Linux x86_64\") d=ba7816bf") && !words[3].contains("d=@"), "{}", words[3]);
    let placeholder = words[3].split('@').any(|part| part.starts_with(|c: char| c.is_ascii_uppercase()));
    assert!(!placeholder, "{}", words[3]);
    // csh takes no longer words than that (tcsh 6.13 and before: 1,024 for a path, 4,096 for an input line).
    assert!(command.len() < 4_096, "{}", command.len());
}

#[test]
fn another_token_gets_no_program() {
    let offer = offer(BootstrapPrograms::default());
    let told = format!("carrack-waits {} gzip Linux riscv64", offer.token);
    let error = offer.program_for(told.as_bytes()).unwrap_err().to_string();
    assert!(error.contains("no program for Linux riscv64"), "{error}");
    let error = offer.program_for(b"carrack-waits 00 gzip Linux x86_64").unwrap_err();
    assert!(matches!(error, SessionError::NotCarrack(_)), "{error}");
}
