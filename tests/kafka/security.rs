//! TLS and SASL.

use std::fs;

use profcol_test_harness::backend::{Destination, Mode};
use profcol_test_harness::kafka::{Broker, Settings};
use profcol_test_harness::peers::{free_address, profcol};
use profcol_test_harness::support::run;

use crate::{Agent, Arrived, agent_config, gateway_config};

const PLAIN: &str = "org.apache.kafka.common.security.plain.PlainLoginModule";
const SCRAM: &str = "org.apache.kafka.common.security.scram.ScramLoginModule";

#[test]
#[ignore = "needs the peers, see cargo xtask test"]
fn passwords_are_checked_over_tls() {
    let directory = tempfile::tempdir().unwrap();
    let names = ["localhost".to_owned(), "127.0.0.1".to_owned()];
    let certified = rcgen::generate_simple_self_signed(names).unwrap();
    let (store, ca) = (
        directory.path().join("store.pem"),
        directory.path().join("ca.pem"),
    );
    let certificate = certified.cert.pem();
    let key = certified.signing_key.serialize_pem();
    fs::write(&store, format!("{key}\n{certificate}")).unwrap();
    fs::write(&ca, certificate).unwrap();
    let (store, ca) = (store.display(), ca.display());
    let secure = free_address();
    let broker = Broker::with(&Settings {
        properties: &format!(
            "ssl.keystore.type=PEM\n\
             ssl.keystore.location={store}\n\
             sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256,SCRAM-SHA-512\n\
             listener.name.sasl_ssl.plain.sasl.jaas.config={PLAIN} required user_ann=\"plain secret\";\n\
             listener.name.sasl_ssl.scram-sha-256.sasl.jaas.config={SCRAM} required;\n\
             listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config={SCRAM} required;"
        ),
        format: &[
            "--add-scram",
            "SCRAM-SHA-256=[name=bob,password=secret256]",
            "--add-scram",
            "SCRAM-SHA-512=[name=eve,password=secret512]",
        ],
        secure: Some(secure),
        ..Settings::default()
    });
    let Some(broker) = broker else {
        return;
    };
    let brokers = format!("localhost:{}", secure.port());
    let login = |name: &str, password: &str, mechanism: &str| {
        format!(
            "tls: {{ca_file: {ca}}}\n    \
             auth: {{sasl: {{username: {name}, password: {password}, mechanism: {mechanism}}}}}"
        )
    };
    let logins = [
        login("ann", "plain secret", "PLAIN"),
        login("bob", "secret256", "SCRAM-SHA-256"),
        login("eve", "secret512", "SCRAM-SHA-512"),
    ];
    for (number, login) in logins.iter().enumerate() {
        let agent = Agent::with(&agent_config(&brokers, login));
        agent.send(number..number + 1);
        agent.stop();
    }
    let destination = Destination::new(Mode::Take);
    let member = profcol(&gateway_config(&brokers, destination.address, &logins[2]));
    let mut arrived = Arrived::default();
    arrived.wait_for(&destination, logins.len());
    let (status, output) = member.stop();
    assert!(status.success(), "{output}");
    assert!(!output.contains("secret512"), "{output}");

    let wrong = agent_config(&brokers, &login("eve", "wrong", "SCRAM-SHA-512"));
    let mut agent = Agent::with(&wrong);
    agent.send(0..1);
    agent
        .process
        .wait_for_output("to report the password", |output| {
            output.contains("check `auth::sasl`")
        });
    drop(agent);
    let file = directory.path().join("wrong.yaml");
    fs::write(&file, wrong).unwrap();
    let checked = run(&["doctor", "--config", file.to_str().unwrap()]);
    assert!(
        checked.stdout.contains("check `auth::sasl`"),
        "{}",
        checked.stdout
    );
    let untrusted = agent_config(&brokers, "tls: {}");
    fs::write(&file, untrusted).unwrap();
    let checked = run(&["doctor", "--config", file.to_str().unwrap()]);
    assert!(
        checked.stdout.contains("set `tls::ca_file`"),
        "{}",
        checked.stdout
    );
    drop(broker);
}
