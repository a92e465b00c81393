//! GBNF and its translation have the same texts: random grammars against a recogniser that reads
//! characters and shares nothing with the translator, and grammars of the kinds that people write.

#[path = "gbnf/accepts.rs"]
mod accepts;
#[path = "gbnf/naive.rs"]
mod naive;

use accepts::{accepts, error_of, to_lark};
use atta_constrain::gbnf::GbnfError;
use naive::{Random, RandomGrammar};
use std::time::{Duration, Instant};

fn check(source: &str, good: &[&str], bad: &[&str]) {
    let lark = to_lark(source).unwrap();
    for text in good {
        assert!(
            accepts(&lark, text.as_bytes()),
            "{text:?} should be accepted by\n{source}\n{lark}"
        );
    }
    for text in bad {
        assert!(
            !accepts(&lark, text.as_bytes()),
            "{text:?} should be refused by\n{source}\n{lark}"
        );
    }
}

/// Compares verdicts on texts of random grammars; returns how many texts were accepted and refused.
fn compare(n_grammars: u64, first_seed: u64) -> (usize, usize) {
    let mut n_accepted = 0;
    let mut n_refused = 0;
    for seed in first_seed..first_seed + n_grammars {
        let mut random = Random::new(seed);
        let grammar = RandomGrammar::new(&mut random);
        let source = grammar.to_string();
        let Ok(lark) = to_lark(&source) else {
            assert!(!grammar.is_productive(), "seed {seed}: refused\n{source}");
            continue;
        };
        for text in grammar.texts(&mut random, 24) {
            let expected = grammar.matches(&text);
            let got = accepts(&lark, text.as_bytes());
            assert_eq!(
                got, expected,
                "seed {seed}: {text:?} (expected {expected}) with\n{source}\n{lark}"
            );
            if expected {
                n_accepted += 1
            } else {
                n_refused += 1
            }
        }
    }
    (n_accepted, n_refused)
}

#[test]
fn random_grammars_keep_their_texts() {
    let n_grammars = std::env::var("GBNF_GRAMMARS").map_or(100, |n| n.parse().unwrap());
    let (n_accepted, n_refused) = compare(n_grammars, 1);
    println!("{n_grammars} grammars, {n_accepted} texts accepted, {n_refused} refused");
    assert!(n_accepted > 3 * n_grammars as usize && n_refused > 3 * n_grammars as usize);
}

const JSON: &str = r##"
# Values, with spaces after them.
root   ::= object
value  ::= object | list | text | number | ("true" | "false" | "null") ws
object ::= "{" ws (
             text ":" ws value
             ("," ws text ":" ws value)*
           )? "}" ws
list   ::= "[" ws ( value ("," ws value)* )? "]" ws
text   ::= "\"" ( [^"\\\x7F\x00-\x1F] | "\\" (["\\bfnrt/] | "u" [0-9a-fA-F]{4}) )* "\"" ws
number ::= ("-"? ([0-9] | [1-9] [0-9]{0,15})) ("." [0-9]+)? ([eE] [-+]? [1-9] [0-9]{0,15})? ws
ws     ::= | " " ws | "\n" [ \t]{0,20}
"##;

#[test]
fn json_with_spaces_at_ends() {
    let good = [
        "{}",
        "{ \"a\": [1, -2.5e+3, \"x\\u00e9\\n\"], \"b\": { \"c\":null } }\n  ",
        "{\"é\":\"日本\",\"\":true}",
    ];
    let bad = [
        "",
        "[]",
        "{\"a\"}",
        "{\"a\":01}",
        "{\"a\":1,}",
        "{\"a\":\"\\q\"}",
        "{\"a\":\"\n\"}",
        "{} x",
        "{\"a\":tru}",
    ];
    check(JSON, &good, &bad);
}

#[test]
fn json_with_spaces_everywhere() {
    let source = r#"root ::= ws value ws
value ::= list | object | string | number | "true" | "false" | "null"
list ::= "[" ws (value ws ("," ws value ws)*)? "]"
object ::= "{" ws (pair (ws "," ws pair)*)? ws "}"
pair ::= string ws ":" ws value
string ::= "\"" char* "\""
char ::= [^"\\] | "\\" ["\\/bfnrt]
number ::= "-"? digits ("." digits)?
digits ::= [0-9]+
ws ::= [ \t\n]*"#;
    let good = [
        " [ ] ",
        "[1,2 , 3]",
        "{ \"a\" : [ { \"b\":\"c\\\"d\" } ] , \"e\":-1.5}",
        "\"\"",
        " true\n",
        "0",
    ];
    check(
        source,
        &good,
        &[
            "",
            "[1 2]",
            "{\"a\" 1}",
            "[,]",
            "tru",
            "- 1",
            "1.",
            "\"a",
            "[1,2]]",
        ],
    );
}

#[test]
fn arithmetic_with_precedence_by_left_recursion() {
    let source = "root ::= expr \"\\n\"
expr ::= expr [-+] term | term
term ::= term [*/] factor | factor
factor ::= number | name | \"(\" expr \")\" | \"-\" factor
number ::= [0-9]+ (\".\" [0-9]+)?
name ::= [a-z] [a-z0-9_]*";
    check(
        source,
        &[
            "1\n",
            "1+2*3\n",
            "(a-1.5)*-(b/c2)\n",
            "--1\n",
            "((((1))))\n",
        ],
        &["", "1", "1+\n", "(1\n", "1.\n", "2a\n"],
    );
}

#[test]
fn chess_moves_are_regular() {
    let source = r#"root ::= "1. " move " " move "\n" ([1-9] [0-9]? ". " move " " move "\n")+
move ::= (pawn | nonpawn | castle) [+#]?
nonpawn ::= [NBKQR] [a-h]? [1-8]? "x"? [a-h] [1-8]
pawn ::= ([a-h] "x")? [a-h] [1-8] ("=" [NBKQR])?
castle ::= "O-O" "-O"?"#;
    assert_eq!(to_lark(source).unwrap().matches("\nT").count(), 1);
    check(
        source,
        &[
            "1. e4 e5\n2. Nf3 Nc6\n",
            "1. d4 d5\n2. O-O-O exd8=Q#\n33. Rae1 O-O+\n",
        ],
        &["1. e4 e5\n", "1. e9 e5\n2. a a\n"],
    );
}

#[test]
fn a_language_like_c() {
    let source = r#"
root ::= (declaration)*
declaration ::= type identifier "(" parameter? ")" "{" statement* "}"
type ::= "int" ws | "float" ws | "char" ws
identifier ::= [a-zA-Z_] [a-zA-Z_0-9]*
parameter ::= type identifier
statement ::=
    ( type identifier ws "=" ws expression ";" ) |
    ( identifier ws "=" ws expression ";" ) |
    ( identifier ws "(" arguments? ")" ";" ) |
    ( "return" ws expression ";" ) |
    ( "while" "(" condition ")" "{" statement* "}" ) |
    ( "if" "(" condition ")" "{" statement* "}" ("else" "{" statement* "}")? ) |
    ( "//" [^\n]* "\n" )
condition ::= expression ("==" | "!=" | "<=" | ">=" | "<" | ">") expression
expression ::= term (("+" | "-") term)*
term ::= factor (("*" | "/") factor)*
factor ::= identifier | number | unary | identifier "(" arguments? ")" | "(" expression ")"
unary ::= "-" factor
arguments ::= expression ("," ws expression)*
number ::= [0-9]+
ws ::= ([ \t\n]+)
"#;
    let good = [
        "",
        "int main(){return 0;}",
        "int f(float x){int y = x*(2+1);if(y<=3){return f(y, -1);}else{// no\ny =\n1;}}char g(){f ();}",
        "int int(){return int;}",
        "int f(){whiley = 1;while(a<b){}}",
    ];
    check(
        source,
        &good,
        &[
            "int main(){return 0}",
            "intf(){}",
            "int f(){if(a){}}",
            "int f(){x = 1}",
            "int 1(){}",
        ],
    );
}

#[test]
fn text_between_elements() {
    let source = "root ::= element
element ::= \"<\" name \">\" content \"</\" name \">\"
content ::= item*
item ::= text | element | \"&\" name \";\"
text ::= [^<&]+
name ::= [a-z]+";
    let lark = to_lark(source).unwrap();
    assert!(
        lark.contains("]+") && lark.contains("](?:") || lark.contains("+/"),
        "text should stay one terminal:\n{lark}"
    );
    check(
        source,
        &["<a></a>", "<a>x y</b>", "<a>x<b>&lt; y</b>é<c></c></a>"],
        &["<a>", "<a>x</a>y", "<a>&;</a>", "<></a>"],
    );
}

#[test]
fn lists_dates_and_comments() {
    let list = r#"root ::= item+ # as many as you like

# an item
item ::= "- " [^\r\n\x0b\x0c\x85\u2028\u2029]+ "\n""#;
    check(
        list,
        &["- a\n", "- a\n- b c\n"],
        &["", "- \n", "- a", "- a\u{2028}\n"],
    );
    let date = r#"root ::= [0-9]{4} "-" month "-" ( "0" [1-9]
  | [12] [0-9] | "3" [01] )
month ::= "0" [1-9] | "1" [0-2]"#;
    check(
        date,
        &["2026-11-22", "0000-01-31"],
        &[
            "2026-13-01",
            "26-01-01",
            "2026-01-32",
            "2026-1-1",
            "2026-11-222",
        ],
    );
}

#[test]
fn japanese_in_recursion() {
    let source = r"root ::= jp-char+ ([ \t\n] jp-char+)*
jp-char ::= hiragana | katakana | punctuation | cjk
hiragana ::= [ぁ-ゟ]
katakana ::= [ァ-ヿ]
punctuation ::= [、-〾]
cjk ::= [一-鿿]";
    check(
        source,
        &["こんにちは", "カタカナ 日本語。", "一"],
        &["", "hello", "こ ", "こx"],
    );
    let nested = "root ::= [ぁ-ゟ]+ (\"「\" root \"」\")? [ァ-ヿ]*";
    check(
        nested,
        &["あ", "あい「うアイ」カ", "あア"],
        &["ア", "あ「」", "あ「い", "あ」"],
    );
}

#[test]
fn texts_that_the_longest_match_would_lose() {
    check(
        "root ::= \"(\" root \")\" | [a-z]+ \"z\"",
        &["az", "zz", "zzz", "((abz))"],
        &["z", "a", "(za)"],
    );
    check(
        "root ::= \"a\" root \"a\" | \"aa\"",
        &["aa", "aaaa", "aaaaaa"],
        &["a", "aaa", "aaaaa"],
    );
    check(
        "root ::= \"if\" root \"end\" | [a-z]+",
        &["if", "ifxend", "x", "ifend", "ififaendend"],
        &["", "IF", "if x"],
    );
    check(
        "root ::= \"x\" root \"é\" | \"aè\"? | \"a\"",
        &["xaé", "xaèé", "xé", ""],
        &["xa", "xaè", "é"],
    );
    check(
        "root ::= ([a]{0,3} \"(\" root \")\")? [a]{2}",
        &["aa", "aaa(aa)aa", "(aa)aa"],
        &["aaa", "aaaa(aa)aa", "a(a)aa"],
    );
}

#[test]
fn tokens_stand_for_themselves() {
    // The numbers of the tokens are those of their bytes here.
    check(
        "root ::= \"a\" <[98]> (root | \"c\")",
        &["abc", "ababc"],
        &["ab", "aac", "abb"],
    );
    // Where both may stand, the token is taken: "by" is lost.
    check(
        "root ::= <[98]> \"x\" | \"b\" \"y\" | \"c\"",
        &["bx", "c"],
        &["by", "b"],
    );
    check(
        "root ::= \"a\" !<[98]> (root | \"c\")",
        &["acc", "a.azc"],
        &["abc", "acb"],
    );
}

#[test]
fn what_may_be_empty() {
    check("root ::= ", &[""], &["a"]);
    check(
        "root ::= a b\na ::= b | \"\"\nb ::= a a | \"x\" |",
        &["", "x", "xxxx"],
        &["y", "xy"],
    );
    check("root ::= (((\"a\"*)*)+)?", &["", "aaa"], &["b"]);
    check(
        "root ::= \"(\" root* \")\" | \"\" | root root",
        &["", "()", "(()())()"],
        &["(", ")("],
    );
    check("root ::= \"a\"{0} \"b\"{0,0} \"c\"", &["c"], &["", "ac"]);
    check(
        "root ::= . | \"(\" root .? \")\"",
        &["a", "\n", "(é)", "(()", "(())", "()))"],
        &["", "()", "(é", "aa"],
    );
}

#[test]
fn changed_grammars_are_refused_or_become_lark_that_llguidance_reads() {
    let n_changes = std::env::var("GBNF_CHANGES").map_or(2000, |n| n.parse().unwrap());
    let mut random = Random::new(7);
    let mut n_good = 0;
    let mut n_bad = 0;
    for _ in 0..n_changes {
        let source = random.change(JSON);
        match to_lark(&source) {
            // Only tokens, which this vocabulary may lack, are written with "<".
            Ok(lark) if !lark.contains('<') => {
                assert_eq!(error_of(&lark), None, "{source}\n{lark}");
                n_good += 1;
            }
            Ok(_) => {}
            Err(_) => n_bad += 1,
        }
    }
    println!("{n_good} translated, {n_bad} refused");
    assert!(n_good > n_changes / 20 && n_bad > n_changes / 20);
}

#[test]
fn hostile_grammars_take_no_time() {
    for source in hostile_that_are_translated() {
        let (lark, what) = in_time(&source);
        assert!(lark.is_ok(), "{lark:?}: {what}");
    }
    for (source, message) in hostile_that_are_refused() {
        let (lark, what) = in_time(&source);
        let error = lark.expect_err(&what).to_string();
        assert!(error.contains(message), "{error}: {what}");
    }
}

/// The translation, that must not take long, and how the source begins.
fn in_time(source: &str) -> (Result<String, GbnfError>, String) {
    let start = Instant::now();
    let lark = to_lark(source);
    let took = start.elapsed();
    let head = source.chars().take(80).collect::<String>();
    // Twenty times what it may take on a machine that has nothing else to do.
    assert!(took < Duration::from_secs(20), "{took:?}: {head}");
    (lark, head)
}

fn many(n: usize, part: &dyn Fn(usize) -> String) -> String {
    (0..n).map(part).collect()
}

/// Rules that all need each other.
fn entangled(n: usize) -> String {
    let rule = |i| format!("r{i} ::= r{} r{i} | r{} | \"\"\n", (i + 1) % n, (i + 3) % n);
    format!("root ::= r0 | \"\"\n{}", many(n, &rule))
}

fn hostile_that_are_translated() -> Vec<String> {
    let times = "{1,9999}) ".repeat(3) + "{1,9999}";
    let optional = "\"a\"? ".repeat(4_000);
    vec![
        "root ::= ((((\"a\"*)*)*)*)".to_owned(),
        format!("root ::= (((\"a\"{times}"),
        format!("root ::= \"(\" root (((\"a\"{times} \")\" | \"x\""),
        format!(
            "root ::= r0\n{}r3000 ::= \"x\"",
            many(3000, &|i| format!("r{i} ::= \"a\" r{}\n", i + 1))
        ),
        entangled(60),
        format!(
            "root ::= \"(\" root \")\" | {}\"x\"",
            many(2_000, &|i| format!("\"w{i}\" root | "))
        ),
        format!(
            "root ::= \"(\" root {} \")\" | \"x\"",
            "[a-z]? ".repeat(1_000)
        ),
        format!("root ::= ({optional})+"),
        format!("root ::= \"(\" root \")\" | \"x\" ({optional})+"),
        format!(
            "root ::= \"(\" root {} \")\" | \"x\"\n{}r0 ::= \"a\"?",
            "r8 ".repeat(20),
            many(8, &|i| format!("r{} ::= (r{i} r{i})? | \"{i}\"\n", i + 1))
        ),
        format!(
            "root ::= {} | \"(\" root \")\"",
            "(\"a\" | \"b\"*)? ".repeat(1_000)
        ),
        format!(
            "root ::= \"(\" root \")\" | {}\"x\"",
            many(300, &|i| format!("[a-z]+ \"{i}\" [a-z]* root | "))
        ),
    ]
}

fn hostile_that_are_refused() -> Vec<(String, &'static str)> {
    let chain = |link: &dyn Fn(usize) -> String, end| {
        format!("root ::= r0\n{}r3000 ::= {end}", many(3000, link))
    };
    vec![
        (
            format!("root ::= {}\"a\"{}", "(".repeat(60_000), ")".repeat(60_000)),
            "groups in one another",
        ),
        (
            format!("root ::= \"a\"{}", "*".repeat(60_000)),
            "at most four repetitions",
        ),
        (
            chain(
                &|i| format!("r{i} ::= \"a\" r{} \"b\" | \"\"\n", i + 1),
                "root",
            ),
            "rules and groups in one another",
        ),
        (
            chain(
                &|i| format!("r{i} ::= r{} r{}\n", i + 1, i + 1),
                "root | \"\"",
            ),
            "rules and groups in one another",
        ),
        (
            chain(
                &|i| format!("r{i} ::= r{} r{} | \"\"\n", i + 1, (i * 7) % 3000),
                "r0",
            ),
            "rules and groups in one another",
        ),
        (
            chain(
                &|i| format!("r{i} ::= \"{}\" r{}\n", "a".repeat(45), i + 1),
                "\"x\"",
            ),
            "parts of the grammar",
        ),
        (
            format!(
                "root ::= \"(\" root \")\" | {}\"x\"",
                many(40_000, &|i| format!("\"w{i}\" | "))
            ),
            "parts of the grammar",
        ),
        (entangled(200), "rules and groups in one another"),
        ("x".repeat(1 << 20), "expected \"::=\", got the end"),
    ]
}
