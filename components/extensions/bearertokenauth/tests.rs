//! Tokens that the server side accepts, the client side's header, files of tokens, and that no token is shown.

use std::fs;

use profcol_component::testkit::context;

use super::*;
use profcol_component::testkit::load;

async fn started(options: &str) -> Result<BearerTokenAuth, StartError> {
    let auth = BearerTokenAuth::new(&load(options).unwrap()).unwrap();
    auth.start().await?;
    Ok(auth)
}

async fn answer(auth: &BearerTokenAuth, header: &str, value: &str) -> Result<(), String> {
    let mut headers = HeaderMap::new();
    let name = HeaderName::try_from(header).unwrap();
    headers.insert(name, value.parse().unwrap());
    match auth.authenticate(&headers).await {
        Ok(_) => Ok(()),
        Err(status) => {
            assert_eq!(status.code, Code::Unauthenticated);
            Err(status.message)
        }
    }
}

#[tokio::test]
async fn accepts_any_of_the_tokens() {
    let check = async |options: &str, header: &str, value: &str, expected: Result<(), &str>| {
        let auth = started(options).await.unwrap();
        let found = answer(&auth, header, value).await;
        assert_eq!(
            found,
            expected.map_err(str::to_owned),
            "{options} {header}: {value}"
        );
    };
    let mismatch = Err("provided authorization does not match expected scheme or token");
    let missing = Err("missing or empty authorization header: authorization");
    check("token: abc", "authorization", "Bearer abc", Ok(())).await;
    check("token: abc", "authorization", "Bearer abd", mismatch).await;
    check("token: abc", "authorization", "Bearer abcd", mismatch).await;
    check("token: abc", "authorization", "abc", mismatch).await;
    check("token: abc", "authorization", "Basic abc", mismatch).await;
    check("token: abc", "authorization", "", missing).await;
    check("token: abc", "x-token", "Bearer abc", missing).await;
    check("tokens: [abc, xyz]", "authorization", "Bearer xyz", Ok(())).await;
    check("tokens: [abc, xyz]", "authorization", "Bearer abc", Ok(())).await;
    check(
        "tokens: [abc, xyz]",
        "authorization",
        "Bearer abcxyz",
        mismatch,
    )
    .await;
    check("{token: abc, scheme: ''}", "authorization", "abc", Ok(())).await;
    check(
        "{token: abc, header: X-Token, scheme: Key}",
        "x-token",
        "Key abc",
        Ok(()),
    )
    .await;
}

#[test]
fn the_challenge_has_the_configured_scheme() {
    let check = |options: &str, expected: Option<&str>| {
        let auth = BearerTokenAuth::new(&load(options).unwrap()).unwrap();
        let challenge = auth.scheme().and_then(|scheme| scheme.challenge());
        let text = challenge.as_ref().map(|value| value.to_str().unwrap());
        assert_eq!(text, expected, "{options}");
    };
    check("token: abc", Some(r#"Bearer realm="profcol""#));
    check("{token: abc, scheme: Key}", Some(r#"Key realm="profcol""#));
    // Not in `Authorization`, or not after a scheme.
    check("{token: abc, header: X-Token}", None);
    check("{token: abc, scheme: ''}", None);
    check("{token: abc, scheme: 'My Key'}", None);
}

#[tokio::test]
async fn sends_the_first_token_and_marks_it_as_sensitive() {
    let check = async |options: &str, header: &str, value: &str| {
        let headers = started(options).await.unwrap().headers().await.unwrap();
        let [(name, sent)] = headers.as_slice() else {
            panic!("{headers:?}");
        };
        assert_eq!((name.as_str(), sent.to_str().unwrap()), (header, value));
        assert!(sent.is_sensitive());
    };
    check("token: abc", "authorization", "Bearer abc").await;
    check("{tokens: [abc, xyz], scheme: ''}", "authorization", "abc").await;
    check("{token: abc, header: X-Token}", "x-token", "Bearer abc").await;
}

#[tokio::test]
async fn a_file_overrides_the_tokens() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("tokens");
    let options = format!("{{filename: '{}', token: ignored}}", path.display());
    let missing = started(&options).await.unwrap_err().to_string();
    assert!(missing.contains("No such file"), "{missing}");
    fs::write(&path, "\n").unwrap();
    let empty = started(&options).await.unwrap_err().to_string();
    assert!(empty.ends_with("it contains no token"), "{empty}");
    fs::write(&path, "abc \n\n xyz\n").unwrap();
    let auth = started(&options).await.unwrap();
    answer(&auth, "authorization", "Bearer abc").await.unwrap();
    answer(&auth, "authorization", "Bearer xyz").await.unwrap();
    answer(&auth, "authorization", "Bearer ignored")
        .await
        .unwrap_err();
}

#[tokio::test]
async fn refuses_everything_before_the_file_was_read() {
    let auth = BearerTokenAuth::new(&load("filename: /nonexistent").unwrap()).unwrap();
    answer(&auth, "authorization", "Bearer ").await.unwrap_err();
    auth.headers().await.unwrap_err();
}

#[test]
fn offers_both_sides_and_shows_no_token() {
    let config: BearerTokenAuthConfig = load("token: hunter2").unwrap();
    let extension = BearerTokenAuth::build(&config, &context("bearertokenauth")).unwrap();
    let mut handles = Handles::default();
    Arc::<dyn Extension>::from(extension).offer(&mut handles);
    let server = handles.get::<Arc<dyn ServerAuth>>().unwrap();
    assert!(handles.get::<Arc<dyn ClientAuth>>().is_some());
    assert!(!format!("{server:?} {config:?}").contains("hunter2"));
}

#[test]
fn validates_the_options() {
    let check = |options: &str, expected: &str| {
        assert_eq!(
            load::<BearerTokenAuthConfig>(options).unwrap_err(),
            expected
        );
    };
    check("", "no bearer token provided");
    check(
        "{token: a, tokens: [b]}",
        "either tokens or token should be provided, not both",
    );
    check(
        "tokens: ['']",
        "tokens::0: an empty token would accept every client",
    );
    check(
        "{token: \"a\\nb\", header: 'a b', scheme: \"\\n\"}",
        "header: \"a b\" is not a valid header name\n\
         scheme: contains characters that are invalid in headers\n\
         token: the token contains characters that are invalid in headers",
    );
}
