//! A machine that gets hot, and cool again.

use std::{fs, time::Duration};

use atta_server::{ServeError, Server, ServerOptions, ThermalOptions};

use crate::running::{ENDLESS, Running, options, source};

#[test]
fn who_computes_pauses_while_it_is_hot_and_not_when_it_is_cool_again() {
    let sys = std::env::temp_dir().join(format!("atta-hot-{}", std::process::id()));
    let zone = sys.join("class/thermal/thermal_zone0");
    let thermal = Some(ThermalOptions {
        celsius: 70.0,
        sys: sys.clone(),
        interval: Duration::from_millis(10),
    });
    let options = ServerOptions {
        thermal,
        ..options()
    };
    assert!(matches!(
        Server::bind(vec![source("stories")], options.clone()),
        Err(ServeError::NoTemperature(path)) if path.ends_with("class/thermal")
    ));
    fs::create_dir_all(&zone).unwrap();
    fs::write(zone.join("temp"), "45000\n").unwrap();
    let server = Running::start(options);
    assert!(server.count("atta_duty") == 1.0 && server.count("atta_temperature_celsius") == 45.0);
    fs::write(zone.join("temp"), "90000\n").unwrap();
    server.wait_until("duty falls", |server| server.count("atta_duty") == 0.25);
    assert!(server.count("atta_temperature_celsius") == 90.0);
    assert!(
        server.count("atta_pauses_total") == 0.0,
        "nothing is computed"
    );
    let stream = server.send("/v1/completions", ENDLESS);
    server.wait_until("steps have pauses behind them", |server| {
        server.count("atta_pauses_total") > 5.0
    });
    drop(stream);
    fs::write(zone.join("temp"), "45000\n").unwrap();
    server.wait_until("duty comes back", |server| server.count("atta_duty") == 1.0);
    let n_pauses = server.count("atta_pauses_total");
    assert!(
        server
            .ask(
                "/v1/completions",
                r#"{"prompt": "One day", "max_tokens": 8}"#
            )
            .starts_with("HTTP/1.1 200")
    );
    assert!(server.count("atta_pauses_total") == n_pauses);
    server.stop();
    fs::remove_dir_all(&sys).unwrap();
}
