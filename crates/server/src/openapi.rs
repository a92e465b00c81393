//! `GET /openapi.json`: a description of this server for generators of clients.
//!
//! The document is written by hand; tests compare it with the structs that requests are read into,
//! and with the router.

use axum::{
    http::{HeaderValue, header},
    response::{IntoResponse, Response},
};

const DOCUMENT: &str = include_str!("../openapi.json");

/// Sends the document.
pub(crate) async fn document() -> Response {
    (
        [(
            header::CONTENT_TYPE,
            HeaderValue::from_static("application/json"),
        )],
        DOCUMENT,
    )
        .into_response()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde::{
        Deserializer,
        de::{DeserializeOwned, Error, Visitor, value},
    };
    use serde_json::{Map, Value};

    use super::DOCUMENT;
    use crate::{
        api::{
            anthropic::{count::CountRequest, create::MessagesRequest},
            llama::{options::LlamaOptions, rerank::RerankRequest, template::TemplateRequest},
            native::{DetokenizeRequest, TokenizeRequest},
            ollama::{
                chat::OllamaChatFields,
                embed::{EmbedRequest, EmbeddingsRequest},
                generate::GenerateFields,
                models::{PullRequest, ShowRequest},
                options::{OllamaOptions, OllamaShared},
            },
            openai::{
                chat::request::{ChatFields, ChatRequest},
                choices::ChoiceFields,
                completions::request::{CompletionFields, CompletionRequest},
                embeddings::EmbeddingRequest,
                responses::request::{ResponseFields, ResponseRequest},
                sampling::OpenAiSampling,
            },
        },
        cluster,
        flow::{
            adapters::AdapterFields,
            body::BodyFields,
            cache_reuse::CacheReuseFields,
            format::FormatFields,
            request::{ApiRequest, PathRequest},
            warnings::Warnings,
        },
        routes,
    };

    fn document() -> Value {
        serde_json::from_str(DOCUMENT).unwrap()
    }

    /// Follows a reference within the document.
    fn resolved<'a>(document: &'a Value, value: &'a Value) -> &'a Value {
        value["$ref"].as_str().map_or(value, |place| {
            document.pointer(place.trim_start_matches('#')).unwrap()
        })
    }

    /// The description of the body that a path takes.
    fn request_body<'a>(document: &'a Value, path: &str) -> &'a Value {
        &document["paths"][path]["post"]["requestBody"]["content"]["application/json"]
    }

    fn names(value: &Value) -> BTreeSet<String> {
        match value {
            Value::Object(fields) => fields.keys().cloned().collect(),
            Value::Array(names) => names
                .iter()
                .map(|name| name.as_str().unwrap().to_owned())
                .collect(),
            _ => BTreeSet::new(),
        }
    }

    /// A deserializer without values that collects the names of the fields of a struct.
    struct FieldNames<'a>(&'a mut BTreeSet<String>);

    impl<'de> Deserializer<'de> for FieldNames<'_> {
        type Error = value::Error;

        fn deserialize_struct<V: Visitor<'de>>(
            self,
            _: &'static str,
            fields: &'static [&'static str],
            _: V,
        ) -> Result<V::Value, value::Error> {
            self.0
                .extend(fields.iter().map(|field| (*field).to_owned()));
            Err(value::Error::custom("there are no values"))
        }

        fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, value::Error> {
            unreachable!("requests are structs")
        }

        serde::forward_to_deserialize_any! {
            bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf
            option unit unit_struct newtype_struct seq tuple tuple_struct map enum identifier
            ignored_any
        }
    }

    /// The names of the fields of a struct.
    fn fields<T: DeserializeOwned>() -> BTreeSet<String> {
        let mut names = BTreeSet::new();
        assert!(T::deserialize(FieldNames(&mut names)).is_err());
        names
    }

    fn has_the_fields_of<T: DeserializeOwned>(schema: &Value) {
        assert_eq!(names(&schema["properties"]), fields::<T>());
    }

    /// The error about a body of some of the fields.
    fn error<R: ApiRequest>(fields: Map<String, Value>) -> Option<String> {
        let error = R::read(BodyFields::new(fields), &Warnings::default()).err()?;
        Some(error.message)
    }

    /// Checks that the schema has the fields of all parts of a request, and that the example has
    /// exactly those that are required.
    fn describes<R: ApiRequest>(path: &str, parts: &[BTreeSet<String>]) {
        let document = document();
        let body = request_body(&document, path);
        let schema = resolved(&document, &body["schema"]);
        let example = &body["example"];
        let expected: BTreeSet<String> = parts.iter().flatten().cloned().collect();
        assert_eq!(names(&schema["properties"]), expected, "{path}");
        assert_eq!(names(example), names(&schema["required"]), "{path}");
        let example = example.as_object().unwrap();
        assert_eq!(error::<R>(example.clone()), None, "{path}");
        for name in example.keys() {
            let mut fields = example.clone();
            fields.remove(name);
            assert_eq!(
                error::<R>(fields),
                Some(format!("the field {name:?} is missing")),
                "{path}"
            );
        }
    }

    /// As [`describes`], for a request that is read in one part.
    fn describes_one<R: ApiRequest + DeserializeOwned>(path: &str) {
        describes::<R>(path, &[fields::<R>()]);
    }

    /// The fields of all requests whose answers are computed.
    fn computed() -> BTreeSet<String> {
        let mut names = fields::<AdapterFields>();
        names.extend(fields::<CacheReuseFields>());
        names
    }

    /// As [`describes_one`], of a request whose answer is computed.
    fn describes_computed<R: ApiRequest + DeserializeOwned>(path: &str) {
        describes::<R>(path, &[fields::<R>(), computed()]);
    }

    #[test]
    fn requests_have_the_fields_that_are_read() {
        let sampling = fields::<OpenAiSampling>;
        let format = fields::<FormatFields>;
        let shared = fields::<OllamaShared>;
        let choices = fields::<ChoiceFields>;
        let chat = [
            fields::<ChatFields>(),
            choices(),
            sampling(),
            format(),
            computed(),
        ];
        describes::<ChatRequest>("/v1/chat/completions", &chat);
        let completion = fields::<CompletionFields>();
        let completion = [completion, choices(), sampling(), format(), computed()];
        describes::<CompletionRequest>("/v1/completions", &completion);
        let response = [fields::<ResponseFields>(), sampling(), computed()];
        describes::<ResponseRequest>("/v1/responses", &response);
        let ollama_chat = [fields::<OllamaChatFields>(), shared(), computed()];
        describes::<PathRequest<OllamaChatFields>>("/api/chat", &ollama_chat);
        let generate = [fields::<GenerateFields>(), shared(), computed()];
        describes::<PathRequest<GenerateFields>>("/api/generate", &generate);
        describes_computed::<EmbeddingRequest>("/v1/embeddings");
        describes_computed::<MessagesRequest>("/v1/messages");
        describes_one::<CountRequest>("/v1/messages/count_tokens");
        describes_computed::<EmbedRequest>("/api/embed");
        describes_computed::<EmbeddingsRequest>("/api/embeddings");
        describes_one::<TemplateRequest>("/apply-template");
        describes_computed::<RerankRequest>("/reranking");
        describes_one::<TokenizeRequest>("/tokenize");
        describes_one::<DetokenizeRequest>("/detokenize");
    }

    #[test]
    fn named_schemas_have_the_fields_that_are_read() {
        let document = document();
        let schemas = &document["components"]["schemas"];
        has_the_fields_of::<OllamaOptions>(&schemas["Options"]);
        has_the_fields_of::<LlamaOptions>(&schemas["NativeSettings"]);
        // The model has two names; a request needs either.
        has_the_fields_of::<ShowRequest>(&schemas["ShowRequest"]);
        has_the_fields_of::<PullRequest>(&schemas["PullRequest"]);
    }

    #[test]
    fn a_ring_has_the_fields_that_are_described() {
        let document = document();
        let schemas = &document["components"]["schemas"];
        let ring = serde_json::to_value(cluster::tests::ring()).unwrap();
        let node = &ring["nodes"][0];
        for (name, sent) in [
            ("Ring", &ring),
            ("RingAudit", &ring["audit"]),
            ("RingSpeed", &ring["expected"]),
            ("RingNode", node),
            ("RingTotals", &node["totals"]),
            ("RingLink", &node["link"]),
            ("RingEvent", &ring["events"][0]),
        ] {
            let schema = &schemas[name];
            assert_eq!(names(&schema["properties"]), names(sent), "{name}");
            assert_eq!(names(&schema["required"]), names(sent), "{name}");
        }
        for (field, schema) in [
            (&ring["state"], &schemas["Ring"]),
            (&node["state"], &schemas["RingNode"]),
        ] {
            let words = schema["properties"]["state"]["enum"].as_array().unwrap();
            assert!(words.contains(field), "{field}");
        }
    }

    #[test]
    fn paths_and_methods_are_those_of_the_router() {
        let document = document();
        let described: BTreeSet<(String, String)> = document["paths"]
            .as_object()
            .unwrap()
            .iter()
            .flat_map(|(path, item)| names(item).into_iter().map(|method| (path.clone(), method)))
            .collect();
        let gets = routes::gets();
        let posts = routes::posts();
        let gets = gets
            .iter()
            .map(|(path, _)| (path.replace('*', ""), "get".to_owned()));
        let posts = posts
            .iter()
            .map(|(path, _)| ((*path).to_owned(), "post".to_owned()));
        assert_eq!(described, gets.chain(posts).collect());
    }

    #[test]
    fn references_lead_somewhere_and_everything_that_has_a_name_is_referred_to() {
        let document = document();
        let mut found = BTreeSet::new();
        let mut open = vec![&document];
        while let Some(value) = open.pop() {
            if let Some(place) = value["$ref"].as_str() {
                assert!(
                    document.pointer(place.trim_start_matches('#')).is_some(),
                    "{place}"
                );
                found.insert(place.to_owned());
            }
            match value {
                Value::Object(fields) => open.extend(fields.values()),
                Value::Array(items) => open.extend(items),
                _ => {}
            }
        }
        let all = names(&document["components"]["schemas"]);
        let unused: Vec<_> = all
            .iter()
            .filter(|name| !found.contains(&format!("#/components/schemas/{name}")))
            .collect();
        assert_eq!(unused, Vec::<&String>::new());
    }

    #[test]
    fn it_is_of_this_version() {
        assert_eq!(document()["info"]["version"], env!("CARGO_PKG_VERSION"));
    }
}
