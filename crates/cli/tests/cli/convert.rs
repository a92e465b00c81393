//! `atta convert` and `atta imatrix`: one file becomes another.

use std::fs;

use serde_json::Value;

use crate::program::{Scratch, atta, error_of, model, stdout};

/// The story model as a file: 256 wide, so that every type fits.
const STORIES: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../tests/golden/stories.gguf"
);
const TEXT: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../tools/builtin-model/stories/README.md"
);

/// Standard output of a run that may warn.
fn done(args: &[&str]) -> String {
    let output = atta(args);
    assert_eq!(
        output.status.code(),
        Some(0),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).unwrap()
}

fn json(args: &[&str]) -> Value {
    serde_json::from_str(&done(args)).unwrap()
}

fn fails(args: &[&str], code: i32) -> String {
    error_of(&atta(args), code)
}

#[test]
fn a_model_that_is_split_and_merged_is_the_same_file() {
    let scratch = Scratch::new("split");
    let parts = scratch.path("parts.gguf");
    let whole = scratch.path("whole.gguf");
    let said = json(&["convert", STORIES, &parts, "--split", "1M", "--json"]);
    let files: Vec<&str> = said["files"]
        .as_array()
        .unwrap()
        .iter()
        .map(|f| f.as_str().unwrap())
        .collect();
    assert!(
        files.len() >= 3 && files[0].contains("parts-00001-of-0000"),
        "{said}"
    );
    let text = |path: &str| stdout(&["run", path, "-p", "A", "-n", "4", "-t", "0"]);
    assert_eq!(text(files[1]), text(STORIES));
    stdout(&["convert", files[1], &whole]);
    assert_eq!(fs::read(&whole).unwrap(), fs::read(STORIES).unwrap());
    let said = fails(&["convert", STORIES, &parts, "--split", "1M"], 1);
    assert!(
        said.contains("parts-00001-of-0000") && said.contains("exists already"),
        "{said}"
    );
}

#[test]
fn a_mix_is_written_said_and_run() {
    let scratch = Scratch::new("mix");
    let path = scratch.path("small.gguf");
    let output = atta(&["convert", STORIES, &path, "--type", "Q4_K_m", "--json"]);
    let said: Value = serde_json::from_slice(&output.stdout).unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(stderr.contains("were quantized already"), "{stderr}");
    assert!(
        (4.5..6.0).contains(&said["bits_per_weight"].as_f64().unwrap()),
        "{said}"
    );
    let types = &json(&["inspect", &path, "--json"])["tensors_by_type"];
    assert!(
        types["Q4_K"]["tensors"].as_u64() > Some(10) && types["Q6_K"]["tensors"].as_u64() > Some(1),
        "{types}"
    );
    assert!(!stdout(&["run", &path, "-p", "Once upon a time", "-n", "8"]).is_empty());
}

#[test]
fn a_tensor_has_the_type_that_it_was_given() {
    let scratch = Scratch::new("types");
    let path = scratch.path("a.gguf");
    let types = [
        "--type",
        "q4_0",
        "--pure",
        "--tensor-type",
        "attn_[qk]=f16",
        "--tensor-type",
        "q=f32",
    ];
    done(&[&["convert", STORIES, &path][..], &types].concat());
    let object = json(&["inspect", &path, "--json", "--tensors"]);
    for tensor in object["tensors"].as_array().unwrap() {
        let name = tensor["name"].as_str().unwrap();
        let ty = tensor["type"].as_str().unwrap();
        let want = match name {
            _ if name.contains("norm") => "F32",
            _ if name.contains("attn_q") || name.contains("attn_k") => "F16",
            _ => "Q4_0",
        };
        assert_eq!(ty, want, "{name}");
    }
    assert_eq!(object["metadata"]["general.file_type"], 2);
}

#[test]
fn what_would_be_done_is_said_and_nothing_is_written() {
    let scratch = Scratch::new("dry");
    let path = scratch.path("a.gguf");
    let said = json(&[
        "convert",
        STORIES,
        &path,
        "--type",
        "q5_k_s",
        "--dry-run",
        "--json",
    ]);
    assert_eq!(said["files"], serde_json::json!([]));
    assert!(!fs::exists(&path).unwrap());
    done(&["convert", STORIES, &path, "--type", "q5_k_s"]);
    assert!(said["bytes"].as_u64().unwrap() < fs::metadata(&path).unwrap().len());
}

#[test]
fn all_that_keeps_a_checkpoint_from_being_converted_is_listed() {
    let scratch = Scratch::new("dry-problems");
    let golden = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../tests/golden/convert/qwen3.bf16"
    );
    let config = fs::read_to_string(format!("{golden}/config.json")).unwrap();
    let mut config: serde_json::Value = serde_json::from_str(&config).unwrap();
    config["is_causal"] = false.into();
    config["rope_interleaved"] = true.into();
    scratch.file("config.json", config.to_string().as_bytes());
    let weights = fs::read(format!("{golden}/model.safetensors")).unwrap();
    scratch.file("model.safetensors", &weights);
    let folder = scratch.path("");
    let out = scratch.path("a.gguf");
    let output = atta(&["convert", &folder, &out, "--dry-run"]);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(String::from_utf8_lossy(&output.stdout), "");
    let said = String::from_utf8(output.stderr).unwrap();
    // A line for each problem, the error last.
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!(lines.len(), 3, "{said}");
    for (line, named) in lines
        .iter()
        .zip(["rope_interleaved", "is_causal", "2 problems"])
    {
        assert!(line.contains(named), "{named}: {said}");
    }
    assert!(!fs::exists(&out).unwrap());
}

#[test]
fn what_is_there_is_not_overwritten_by_accident() {
    let scratch = Scratch::new("there");
    let path = scratch.file("a.gguf", b"mine");
    let said = fails(&["convert", STORIES, &path], 1);
    assert!(
        said.contains("exists already") && said.contains("--force"),
        "{said}"
    );
    assert_eq!(fs::read(&path).unwrap(), b"mine");
    stdout(&["convert", STORIES, &path, "--force"]);
    assert_eq!(fs::read(&path).unwrap(), fs::read(STORIES).unwrap());
}

#[test]
fn an_importance_matrix_is_collected_added_to_and_used() {
    let scratch = Scratch::new("imatrix");
    let one = scratch.path("one.imatrix");
    let two = scratch.path("two.imatrix");
    stdout(&[
        "imatrix", STORIES, "-f", TEXT, "-c", "64", "--chunks", "2", "-o", &one,
    ]);
    stdout(&[
        "imatrix", STORIES, "-f", TEXT, "-c", "64", "--chunks", "1", "-o", &two, "--add", &one,
    ]);
    let metadata = &json(&["inspect", &two, "--json"])["metadata"];
    assert_eq!(
        (
            &metadata["imatrix.chunk_count"],
            &metadata["imatrix.chunk_size"]
        ),
        (&3.into(), &64.into())
    );
    let with = scratch.path("with.gguf");
    let without = scratch.path("without.gguf");
    let output = atta(&[
        "convert",
        STORIES,
        &with,
        "--type",
        "q4_k_s",
        "--imatrix",
        &one,
    ]);
    assert!(
        !String::from_utf8(output.stderr)
            .unwrap()
            .contains("are not in the importance matrix")
    );
    done(&["convert", STORIES, &without, "--type", "q4_k_s"]);
    assert_ne!(fs::read(&with).unwrap(), fs::read(&without).unwrap());
    let metadata = &json(&["inspect", &with, "--json"])["metadata"];
    assert_eq!(metadata["quantize.imatrix.chunks_count"], 2);
}

#[test]
fn a_matrix_overwrites_nothing_and_grows_only_by_its_own_model() {
    let scratch = Scratch::new("imatrix-there");
    let path = scratch.path("a.imatrix");
    let collect = |model: &str, more: &[&str]| {
        atta(
            &[
                &[
                    "imatrix", model, "-f", TEXT, "-c", "64", "--chunks", "1", "-o", &path,
                ][..],
                more,
            ]
            .concat(),
        )
    };
    assert_eq!(collect(STORIES, &[]).status.code(), Some(0));
    assert!(error_of(&collect(STORIES, &[]), 1).contains("exists already"));
    assert_eq!(collect(STORIES, &["--add", &path]).status.code(), Some(0));
    let chat = model("qwen3.gguf");
    let said = error_of(&collect(&chat, &["--add", &path]), 1);
    assert!(
        said.contains("the importance matrix is of another model"),
        "{said}"
    );
}

#[test]
fn streamed_weights_give_the_same_importance() {
    let scratch = Scratch::new("streamed");
    let mapped = scratch.path("mapped");
    let streamed = scratch.path("streamed");
    let collect = |path: &str, more: &[&str]| {
        done(
            &[
                &[
                    "imatrix", STORIES, "-f", TEXT, "-c", "64", "--chunks", "1", "-o", path,
                ][..],
                more,
            ]
            .concat(),
        );
        fs::read(path).unwrap()
    };
    let weights = ["--weights", "streamed", "--ram-budget", "12M"];
    assert_eq!(collect(&mapped, &[]), collect(&streamed, &weights));
}

#[test]
fn a_matrix_of_another_model_is_refused() {
    let scratch = Scratch::new("foreign");
    let (path, out) = (scratch.path("a.imatrix"), scratch.path("a.gguf"));
    stdout(&[
        "imatrix", STORIES, "-f", TEXT, "-c", "64", "--chunks", "1", "-o", &path,
    ]);
    let said = fails(
        &[
            "convert",
            &model("llama-plain.gguf"),
            &out,
            "--type",
            "q8_0",
            "--imatrix",
            &path,
        ],
        1,
    );
    assert!(
        said.contains("the importance matrix is of another model"),
        "{said}"
    );
    let said = fails(
        &[
            "convert",
            STORIES,
            &out,
            "--type",
            "q8_0",
            "--imatrix",
            STORIES,
        ],
        1,
    );
    assert!(said.contains("is no importance matrix"), "{said}");
    let said = fails(&["convert", STORIES, &out, "--type", "q2_k_s"], 1);
    assert!(said.contains("without an importance matrix"), "{said}");
    assert!(!fs::exists(&out).unwrap());
}

#[test]
fn a_model_goes_to_leap_and_back() {
    let scratch = Scratch::new("leap");
    let exact = scratch.path("f32.gguf");
    let bin = scratch.path("stories.bin");
    let back = scratch.path("back.gguf");
    done(&["convert", STORIES, &exact, "--type", "f32"]);
    let said = stdout(&["convert", &exact, &bin, "--to", "leap-f32"]);
    assert!(said.ends_with("tokenizer.bin\n"), "{said}");
    stdout(&["convert", &bin, &back]);
    let text = |path: &str| stdout(&["run", path, "-p", "The little ant", "-n", "24", "-t", "0"]);
    assert_eq!(text(&back), text(&exact));
    let said = json(&[
        "convert",
        &exact,
        &bin,
        "--to",
        "leap-int8",
        "--force",
        "--json",
    ]);
    assert_eq!(said["group_size"], 64);
    let loss = said["losses"][0]["mean"].as_f64().unwrap();
    assert!(loss > 0.0 && loss < 0.02, "{said}");
}

#[test]
fn options_that_mean_nothing_are_refused() {
    let scratch = Scratch::new("idle");
    let out = scratch.path("a.bin");
    fails(
        &[
            "convert", STORIES, &out, "--to", "leap-f32", "--type", "q8_0",
        ],
        2,
    );
    fails(
        &["convert", STORIES, &out, "--to", "leap-int8", "--dry-run"],
        2,
    );
    fails(&["convert", STORIES, &out, "--pure"], 2);
    fails(&["convert", STORIES, &out, "--imatrix", TEXT], 2);
    fails(
        &["convert", STORIES, &out, "--to", "leap-f32", "-j", "2"],
        2,
    );
    fails(
        &[
            "convert",
            STORIES,
            &scratch.path("tokenizer.bin"),
            "--to",
            "leap-f32",
        ],
        1,
    );
    let idle = atta(&[
        "convert",
        STORIES,
        &out,
        "--to",
        "gguf",
        "--tensor-type",
        "nothing=q8_0",
        "--dry-run",
    ]);
    let said = String::from_utf8(idle.stderr).unwrap();
    assert!(
        said.contains("--tensor-type nothing=Q8_0 decides nothing"),
        "{said}"
    );
    fails(&["convert", STORIES, &out, "--tensor-type", "ffn=q9"], 2);
    fails(&["convert", STORIES, &out, "--tensor-type", "(=q8_0"], 2);
    assert!(
        fails(&["convert", STORIES, &out, "--pre", "qwen2"], 1).contains("--pre does not apply")
    );
    assert!(
        fails(&["convert", STORIES, &out, "--tokenizer", TEXT], 1)
            .contains("--tokenizer does not apply")
    );
}

#[test]
fn what_is_no_model_is_said_to_be_none() {
    let scratch = Scratch::new("none");
    let out = scratch.path("a.gguf");
    assert!(fails(&["convert", TEXT, &out], 1).contains("is no GGUF or QSF file"));
    assert!(fails(&["convert", &scratch.path(""), &out], 1).contains("holds neither config.json"));
    assert!(fails(&["convert", &scratch.path("nothing"), &out], 1).contains("nothing: "));
    let tensors = scratch.file("model.safetensors", b"{}");
    assert!(fails(&["convert", &tensors, &out], 1).contains("name the directory"));
}

#[test]
fn a_weight_that_is_no_number_is_found_and_nothing_is_left() {
    let scratch = Scratch::new("nan");
    let exact = scratch.path("f32.gguf");
    done(&["convert", STORIES, &exact, "--type", "f32"]);
    let mut bytes = fs::read(&exact).unwrap();
    let object = json(&["inspect", &exact, "--json", "--tensors"]);
    let tensor = object["tensors"]
        .as_array()
        .unwrap()
        .iter()
        .find(|t| t["name"] == "blk.2.ffn_up.weight")
        .unwrap();
    let at = tensor["offset"].as_u64().unwrap() as usize + 4 * 700;
    bytes[at..at + 4].copy_from_slice(&f32::NAN.to_le_bytes());
    let broken = scratch.file("broken.gguf", &bytes);
    let out = scratch.path("a.gguf");
    for more in [&["--type", "q4_k_m"][..], &[]] {
        let said = fails(&[&["convert", &broken, &out][..], more].concat(), 1);
        assert!(
            said.contains("blk.2.ffn_up.weight: ") && said.contains("NaN"),
            "{said}"
        );
    }
    assert_eq!(scratch.names().len(), 2, "no part of a file is left");
}

#[test]
fn a_qsf_file_has_the_logits_of_its_gguf_file_bit_for_bit() {
    let scratch = Scratch::new("qsf");
    let [qsf, gguf, again] = ["m.qsf", "m.gguf", "again.qsf"].map(|name| scratch.path(name));
    let said = json(&["convert", STORIES, &qsf, "--type", "qsf_mixed", "--json"]);
    let cosine = said["cosines"][0]["cosine"].as_f64().unwrap();
    assert!((0.9..1.0).contains(&cosine), "{said}");
    done(&["convert", &qsf, &gguf]);
    done(&["convert", &gguf, &again]);
    assert!(fs::read(&qsf).unwrap() == fs::read(&again).unwrap());
    let logits = |model: &str, more: &[&str]| {
        let out = scratch.path("logits.f32");
        let args = ["logits", model, "--tokens", "1,40,5,77", "-o", &out];
        done(&[&args, more].concat());
        fs::read(out).unwrap()
    };
    let want = logits(&gguf, &[]);
    assert!(logits(&qsf, &[]) == want);
    assert!(logits(&qsf, &["--weights", "streamed"]) == want);
    let text = |model: &str| stdout(&["run", model, "-p", "A", "-n", "4", "-t", "0"]);
    assert_eq!(text(&qsf), text(&gguf));
}

#[test]
fn a_plain_qsf_file_runs_and_says_what_is_assumed() {
    const PLAIN: &str = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../tests/golden/qsf/plain.qsf"
    );
    let scratch = Scratch::new("plain-qsf");
    let out = scratch.path("logits.f32");
    let output = atta(&["logits", PLAIN, "--tokens", "1,5,32,7", "-o", &out]);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        output.status.success() && said.contains("assumed: RMS epsilon 1e-5"),
        "{said}"
    );
    assert_eq!(fs::read(&out).unwrap().len(), 4 * 4 * 33);
    let said = fails(
        &["run", &PLAIN.replace("plain", "compressed"), "-p", "A"],
        1,
    );
    assert!(said.contains("layer 0 is compressed"), "{said}");
}

#[test]
fn options_that_do_not_go_with_qsf_are_refused() {
    let scratch = Scratch::new("no-qsf");
    let qsf = scratch.path("m.qsf");
    let said = fails(&["convert", STORIES, &qsf, "--split", "1M"], 2);
    assert!(said.contains("--split does not apply to QSF"), "{said}");
    let said = fails(
        &[
            "convert",
            STORIES,
            &qsf,
            "--type",
            "t3",
            "--min-cosine",
            "0.9",
        ],
        2,
    );
    assert!(
        said.contains("--min-cosine is for the types of QSF"),
        "{said}"
    );
    let said = fails(
        &[
            "convert",
            STORIES,
            &qsf,
            "--type",
            "qsf4",
            "--min-cosine",
            "2",
        ],
        2,
    );
    assert!(said.contains("a number from 0 to 1"), "{said}");
}
