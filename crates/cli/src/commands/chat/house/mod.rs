//! A simulated house for `atta chat --house`: its tools change a state in memory until the chat
//! ends.
//!
//! The tools and their results are those of `examples/home/house.py`.

mod arithmetic;
mod units;

use std::collections::BTreeMap;

use atta::tools::ToolCall;
use chrono::Local;
use serde_json::{Value, json};

const SKIES: [&str; 8] = [
    "sunny",
    "cloudy",
    "light rain",
    "heavy rain",
    "fog",
    "snow",
    "clear",
    "windy",
];

/// The result of a tool, or its error.
type ToolResult = Result<Value, String>;

/// The state that other tools ask for.
#[derive(Default)]
pub(super) struct House {
    /// Labels of timers.
    timers: Vec<String>,
    /// The time and the day of each.
    alarms: Vec<[String; 2]>,
    is_playing: bool,
    lists: BTreeMap<String, Vec<String>>,
}

impl House {
    /// Runs a call and returns its result as JSON.
    pub(super) fn run(&mut self, call: &ToolCall) -> String {
        let done = self.call(&call.name, &Arguments(&call.arguments));
        done.unwrap_or_else(|why| json!({ "error": why }))
            .to_string()
    }

    fn call(&mut self, tool: &str, arguments: &Arguments<'_>) -> ToolResult {
        match tool {
            "set_light" => set_light(arguments),
            "set_temperature" => set_temperature(arguments),
            "set_timer" => self.set_timer(arguments),
            "cancel_timer" => self.cancel_timer(arguments),
            "set_alarm" => self.set_alarm(arguments),
            "cancel_alarm" => self.cancel_alarm(arguments),
            "get_weather" => Ok(weather(arguments)),
            "get_time" => time(arguments),
            "get_date" => Ok(date()),
            "play_music" => self.play(true),
            "control_music" => self.control_music(arguments),
            "add_to_list" => self.add_to_list(arguments),
            "remove_from_list" => self.remove_from_list(arguments),
            "show_list" => Ok(json!({ "items": self.list(arguments) })),
            "calculate" => Ok(result(arithmetic::value(arguments.text("expression"))?)),
            "convert" => convert(arguments),
            _ => done(),
        }
    }

    fn set_timer(&mut self, arguments: &Arguments<'_>) -> ToolResult {
        if ["hours", "minutes", "seconds"]
            .iter()
            .all(|unit| arguments.number(unit) == 0.0)
        {
            return Err("how long is missing".to_owned());
        }
        let label = arguments.text("label").to_owned();
        self.timers.retain(|timer| *timer != label);
        self.timers.push(label);
        done()
    }

    fn cancel_timer(&mut self, arguments: &Arguments<'_>) -> ToolResult {
        let label = arguments.get("label");
        let n = self.timers.len();
        self.timers
            .retain(|timer| label.is_some_and(|label| label != timer));
        if self.timers.len() < n {
            done()
        } else {
            Err("there is no such timer".to_owned())
        }
    }

    fn set_alarm(&mut self, arguments: &Arguments<'_>) -> ToolResult {
        let day = arguments.get("day").unwrap_or("next");
        self.alarms
            .push([arguments.text("time"), day].map(str::to_owned));
        done()
    }

    fn cancel_alarm(&mut self, arguments: &Arguments<'_>) -> ToolResult {
        let wanted = ["time", "day"].map(|key| arguments.get(key));
        let n = self.alarms.len();
        let fits = |alarm: &[String; 2]| {
            wanted
                .iter()
                .zip(alarm)
                .all(|(wanted, is)| wanted.is_none_or(|w| w == is))
        };
        self.alarms.retain(|alarm| !fits(alarm));
        if self.alarms.len() < n {
            done()
        } else {
            Err("there is no such alarm".to_owned())
        }
    }

    fn play(&mut self, is_playing: bool) -> ToolResult {
        self.is_playing = is_playing;
        done()
    }

    fn control_music(&mut self, arguments: &Arguments<'_>) -> ToolResult {
        match self.is_playing {
            true => self.play(arguments.text("action") != "stop"),
            false => Err("nothing is playing".to_owned()),
        }
    }

    fn list(&mut self, arguments: &Arguments<'_>) -> &mut Vec<String> {
        self.lists
            .entry(arguments.text("list").to_lowercase())
            .or_default()
    }

    fn add_to_list(&mut self, arguments: &Arguments<'_>) -> ToolResult {
        self.list(arguments)
            .extend(arguments.texts("items").map(str::to_owned));
        done()
    }

    fn remove_from_list(&mut self, arguments: &Arguments<'_>) -> ToolResult {
        let list = self.list(arguments);
        for item in arguments.texts("items") {
            let at = list.iter().position(|there| there == item);
            list.remove(
                at.ok_or_else(|| format!("{item} is not on the {} list", arguments.text("list")))?,
            );
        }
        done()
    }
}

/// The arguments of a call, which match the definition of its tool.
struct Arguments<'a>(&'a Value);

impl<'a> Arguments<'a> {
    fn get(&self, key: &str) -> Option<&'a str> {
        self.0.get(key).and_then(Value::as_str)
    }

    fn text(&self, key: &str) -> &'a str {
        self.get(key).unwrap_or_default()
    }

    fn texts(&self, key: &str) -> impl Iterator<Item = &'a str> {
        self.0
            .get(key)
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
    }

    fn number(&self, key: &str) -> f64 {
        self.0.get(key).and_then(Value::as_f64).unwrap_or(0.0)
    }

    fn has_any(&self, keys: &[&str]) -> bool {
        keys.iter().any(|key| self.0.get(key).is_some())
    }
}

fn set_light(arguments: &Arguments<'_>) -> ToolResult {
    if arguments.has_any(&["on", "brightness", "color"]) {
        done()
    } else {
        Err("on, brightness or color is missing".to_owned())
    }
}

fn done() -> ToolResult {
    Ok(json!({ "ok": true }))
}

/// A number with at most four decimal places, without trailing zeros.
fn result(value: f64) -> Value {
    let value = (value * 1e4).round() / 1e4;
    let is_whole = value.fract() == 0.0 && value.abs() < 1e15;
    let value = if is_whole {
        json!(value as i64)
    } else {
        json!(value)
    };
    json!({ "result": value })
}

fn set_temperature(arguments: &Arguments<'_>) -> ToolResult {
    match arguments.number("degrees") {
        5.0..=90.0 => done(),
        _ => Err("the heating goes from 5 to 90 degrees".to_owned()),
    }
}

fn convert(arguments: &Arguments<'_>) -> ToolResult {
    let from = arguments.text("from");
    let to = arguments.text("to");
    let value = units::convert(arguments.number("value"), from, to);
    value
        .map(result)
        .ok_or_else(|| format!("no way from {from} to {to}"))
}

/// Made-up weather that stays the same for a day.
fn weather(arguments: &Arguments<'_>) -> Value {
    let place = arguments.get("place").unwrap_or("here");
    let day = arguments.get("day").unwrap_or("today");
    let text = format!("{place} {day} {}", Local::now().format("%F"));
    let chance = text.bytes().fold(7_usize, |hash, byte| {
        hash.wrapping_mul(31).wrapping_add(byte.into()) % 1_000_003
    });
    json!({ "sky": SKIES[chance % SKIES.len()], "temperature": chance / SKIES.len() % 30 })
}

fn time(arguments: &Arguments<'_>) -> ToolResult {
    match arguments.get("place") {
        Some(place) => Err(format!("I do not know the time in {place}")),
        None => Ok(json!({ "time": Local::now().format("%H:%M").to_string() })),
    }
}

fn date() -> Value {
    json!({ "date": Local::now().format("%A, %-d %B").to_string() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(house: &mut House, tool: &str, arguments: Value) -> String {
        house.run(&ToolCall {
            id: "1".into(),
            name: tool.into(),
            arguments,
        })
    }

    #[test]
    fn the_tools_are_those_of_the_example() {
        assert_eq!(
            crate::tools::HOUSE,
            include_str!("../../../../../../examples/home/tools.json")
        );
    }

    #[test]
    fn lists_keep_what_is_put_on_them() {
        let mut house = House::default();
        said(
            &mut house,
            "add_to_list",
            json!({ "list": "Shopping", "items": ["oil", "milk"] }),
        );
        said(
            &mut house,
            "remove_from_list",
            json!({ "list": "shopping", "items": ["oil"] }),
        );
        assert_eq!(
            said(&mut house, "show_list", json!({ "list": "shopping" })),
            r#"{"items":["milk"]}"#
        );
        assert!(
            said(
                &mut house,
                "remove_from_list",
                json!({ "list": "shopping", "items": ["oil"] })
            )
            .contains("is not on")
        );
    }

    #[test]
    fn what_was_not_set_cannot_be_cancelled() {
        let mut house = House::default();
        assert!(said(&mut house, "cancel_timer", json!({})).contains("no such timer"));
        said(
            &mut house,
            "set_timer",
            json!({ "minutes": 3, "label": "rice" }),
        );
        assert!(
            said(&mut house, "cancel_timer", json!({ "label": "tea" })).contains("no such timer")
        );
        assert!(said(&mut house, "cancel_timer", json!({ "label": "rice" })).contains("ok"));
        said(&mut house, "set_alarm", json!({ "time": "06:30" }));
        assert!(
            said(&mut house, "cancel_alarm", json!({ "time": "07:30" })).contains("no such alarm")
        );
        assert!(said(&mut house, "cancel_alarm", json!({})).contains("ok"));
        assert!(
            said(&mut house, "control_music", json!({ "action": "stop" }))
                .contains("nothing is playing")
        );
    }

    #[test]
    fn numbers_are_short() {
        let mut house = House::default();
        let ounces = json!({ "value": 3, "from": "ounces", "to": "grams" });
        assert_eq!(said(&mut house, "convert", ounces), r#"{"result":85.0486}"#);
        assert_eq!(
            said(&mut house, "calculate", json!({ "expression": "6 * 7" })),
            r#"{"result":42}"#
        );
    }
}
