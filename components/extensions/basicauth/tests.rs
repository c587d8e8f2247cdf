//! The server side with passwords in every supported hash, the client side's header, and that no password is shown.

use std::fs;

use http::HeaderMap;
use http::header::AUTHORIZATION;
use profcol_component::testkit::context;
use profcol_net::grpc::Code;

use super::htpasswd::{CacheKey, Htpasswd};
use super::*;
use profcol_component::testkit::load;

/// `secret`, hashed in each supported way.
const BCRYPT: &str = "$2b$04$";
const SHA: &str = "{SHA}5en6G6MezRroT3XKqkdPOmY/BfQ=";

fn lines() -> String {
    let bcrypt = bcrypt::hash("secret", 4).unwrap();
    assert!(bcrypt.starts_with(BCRYPT));
    let apache = bcrypt.replacen("$2b$", "$2y$", 1);
    format!(
        "# users\nbcrypt:{bcrypt}\napache:{apache}\n\nsha:{SHA}\nssha:{}\nplain:secret\ncolon:a:b\n",
        ssha("secret", b"salt")
    )
}

fn ssha(password: &str, salt: &[u8]) -> String {
    use base64::Engine;
    let mut context = ring::digest::Context::new(&ring::digest::SHA1_FOR_LEGACY_USE_ONLY);
    context.update(password.as_bytes());
    context.update(salt);
    let bytes = [context.finish().as_ref(), salt].concat();
    format!(
        "{{SSHA}}{}",
        base64::engine::general_purpose::STANDARD.encode(bytes)
    )
}

fn basic(text: &str) -> String {
    use base64::Engine;
    format!(
        "Basic {}",
        base64::engine::general_purpose::STANDARD.encode(text)
    )
}

fn with_file(content: &str) -> (tempfile::TempDir, String) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("htpasswd");
    fs::write(&path, content).unwrap();
    (directory, path.display().to_string())
}

async fn server(options: &str) -> Arc<Server> {
    let auth = BasicAuth::new(&load(options).unwrap()).unwrap();
    auth.start().await.unwrap();
    let Side::Server(server) = auth.0 else {
        panic!("{options} has no server side");
    };
    server
}

/// The accepted user, or the reason for the refusal.
async fn answer(server: &Server, header: &str) -> Result<String, String> {
    let mut headers = HeaderMap::new();
    headers.insert(AUTHORIZATION, header.parse().unwrap());
    match server.authenticate(&headers).await {
        Ok(auth) => Ok(auth.subject.unwrap().to_string()),
        Err(status) => {
            assert_eq!(status.code, Code::Unauthenticated);
            Err(status.message)
        }
    }
}

#[tokio::test]
async fn checks_passwords_with_every_supported_hash() {
    let (_directory, path) = with_file(&lines());
    let server = server(&format!("htpasswd: {{file: '{path}'}}")).await;
    let check = async |user: &str, password: &str, expected: bool| {
        let header = basic(&format!("{user}:{password}"));
        // The second time the password may be cached.
        for _ in 0..2 {
            let found = answer(&server, &header).await;
            let expected = if expected {
                Ok(user)
            } else {
                Err("invalid credentials")
            };
            assert_eq!(
                found,
                expected.map(str::to_owned).map_err(str::to_owned),
                "{user}:{password}"
            );
        }
    };
    for user in ["bcrypt", "apache", "sha", "ssha", "plain"] {
        check(user, "secret", true).await;
        check(user, "Secret", false).await;
        check(user, "", false).await;
        check(user, "secret", true).await;
    }
    check("colon", "a:b", true).await;
    check("nobody", "secret", false).await;
    check("# users", "", false).await;
}

#[tokio::test]
async fn refuses_headers_without_basic_authentication() {
    let server = server("htpasswd: {inline: 'a:b'}").await;
    let check = async |header: &str, expected: &str| {
        assert_eq!(
            answer(&server, header).await.unwrap_err(),
            expected,
            "{header}"
        );
    };
    assert_eq!(answer(&server, &basic("a:b")).await.unwrap(), "a");
    assert_eq!(
        answer(&server, &basic("a:b").replace("Basic", "bAsIc"))
            .await
            .unwrap(),
        "a"
    );
    check("", "no basic auth provided").await;
    check("Bearer abc", "invalid authorization scheme prefix").await;
    check("Basic", "invalid authorization scheme prefix").await;
    check("Basic ???", "invalid authorization format").await;
    check(&basic("no colon"), "invalid authorization format").await;
    let missing = server.authenticate(&HeaderMap::new()).await.unwrap_err();
    assert_eq!(missing.message, "no basic auth provided");
    let challenge = server.scheme().and_then(|scheme| scheme.challenge());
    assert_eq!(
        challenge.unwrap(),
        r#"Basic realm="profcol", charset="UTF-8""#
    );
}

#[tokio::test]
async fn inline_users_override_the_file() {
    let (_directory, path) = with_file("a:file\nb:file\n");
    let server = server(&format!("htpasswd: {{file: '{path}', inline: 'a:inline'}}")).await;
    answer(&server, &basic("a:inline")).await.unwrap();
    answer(&server, &basic("a:file")).await.unwrap_err();
    answer(&server, &basic("b:file")).await.unwrap();
}

#[test]
fn only_correct_passwords_are_cached() {
    let users = Htpasswd::parse("a:b").unwrap();
    let (user, cache_key) = (users.user("a").unwrap(), CacheKey::new().unwrap());
    assert!(!user.is_cached("b", &cache_key));
    assert!(!user.check("c", &cache_key));
    assert!(!user.is_cached("c", &cache_key));
    assert!(user.check("b", &cache_key));
    assert!(user.is_cached("b", &cache_key));
    assert!(!user.is_cached("c", &cache_key));
}

#[test]
fn refuses_unsupported_hashes_without_showing_them() {
    let check = |line: &str, expected: &str| {
        assert_eq!(Htpasswd::parse(line).unwrap_err().to_string(), expected);
    };
    let advice = "hashes are not supported; create one with `htpasswd -B`";
    check(
        "a:$apr1$x$y",
        &format!("line 1: user \"a\": Apache's MD5 {advice}"),
    );
    check(
        "a:b\n\nc:$6$x$y",
        &format!("line 3: user \"c\": SHA-512-crypt {advice}"),
    );
    check(
        "a:$2y$nonsense",
        "line 1: user \"a\": the bcrypt hash is damaged",
    );
    check("a:{SHA}AAAA", "line 1: user \"a\": the SHA hash is damaged");
    check("password", "line 1: not of the form user:hash");
}

async fn sent(options: &str) -> Result<String, String> {
    let auth = BasicAuth::new(&load(options).unwrap()).unwrap();
    auth.start().await.map_err(|error| error.to_string())?;
    let Side::Client(client) = auth.0 else {
        panic!("{options} has no client side");
    };
    let headers = client.headers().await.map_err(|error| error.to_string())?;
    let [(name, value)] = headers.as_slice() else {
        panic!("{headers:?}");
    };
    assert_eq!(name, AUTHORIZATION);
    assert!(value.is_sensitive());
    Ok(value.to_str().unwrap().to_owned())
}

#[tokio::test]
async fn sends_user_and_password_also_from_files() {
    let fixed = sent("client_auth: {username: me, password: 'a:b'}").await;
    assert_eq!(fixed.unwrap(), basic("me:a:b"));
    let (_directory, path) = with_file("from file\n");
    let options =
        format!("client_auth: {{username: me, password: unused, password_file: '{path}'}}");
    assert_eq!(sent(&options).await.unwrap(), basic("me:from file"));
    let options = format!("client_auth: {{username_file: '{path}', password: b}}");
    assert_eq!(sent(&options).await.unwrap(), basic("from file:b"));
    let (_directory, path) = with_file("a:b");
    let options = format!("client_auth: {{username_file: '{path}'}}");
    assert!(
        sent(&options)
            .await
            .unwrap_err()
            .contains("invalid authorization format")
    );
    let missing = sent("client_auth: {username_file: /nonexistent}")
        .await
        .unwrap_err();
    assert!(
        missing.starts_with("failed to read /nonexistent: "),
        "{missing}"
    );
}

#[test]
fn offers_the_configured_side_and_shows_no_password() {
    let check = |options: &str, is_server: bool| {
        let config: BasicAuthConfig = load(options).unwrap();
        let extension = BasicAuth::build(&config, &context("basicauth")).unwrap();
        let mut handles = Handles::default();
        Arc::<dyn Extension>::from(extension).offer(&mut handles);
        let server = handles.get::<Arc<dyn ServerAuth>>();
        let client = handles.get::<Arc<dyn ClientAuth>>();
        assert_eq!(
            (server.is_some(), client.is_some()),
            (is_server, !is_server)
        );
        assert!(!format!("{server:?} {client:?} {config:?}").contains("hunter2"));
    };
    check("htpasswd: {inline: 'a:hunter2'}", true);
    check("client_auth: {username: a, password: hunter2}", false);
}

#[test]
fn validates_the_options() {
    let check = |options: &str, expected: &str| {
        assert_eq!(load::<BasicAuthConfig>(options).unwrap_err(), expected);
    };
    check("", "no credential source provided");
    check("htpasswd:", "htpasswd: no credential source provided");
    check(
        "{htpasswd: {inline: 'a:b'}, client_auth: {username: a}}",
        "only one of `htpasswd` or `client_auth` can be specified",
    );
    check(
        "htpasswd: {inline: secret}",
        "htpasswd::inline: line 1: not of the form user:hash",
    );
    check("client_auth:", "client_auth::username: must not be empty");
    check(
        "client_auth: {username: 'a:b'}",
        "client_auth::username: invalid authorization format: must not contain `:`",
    );
}
