use proptest::prelude::*;

use super::*;

fn redacted(words: &[&str]) -> String {
    let mut words: Vec<String> = words.iter().map(|&word| word.to_owned()).collect();
    command(&mut words);
    words.join(" | ")
}

#[test]
fn secrets_of_command_lines_are_hidden() {
    for (words, expected) in [
        (
            &[
                "--private-key",
                "-----BEGIN PRIVATE KEY-----\nabc\n-----END PRIVATE KEY-----\n",
            ][..],
            "--private-key | [redacted]",
        ),
        (
            &[
                "--cert=-----BEGIN CERTIFICATE-----\nabc def\n-----END CERTIFICATE-----",
                "x",
            ],
            "--cert=[redacted] | x",
        ),
        (&["x-----BEGIN RSA PRIVATE KEY-----\ncut off"], "x[redacted]"),
        (&["--api-key", "-----abc"], "--api-key | [redacted]"),
        (&["--token=abc"], "--token=[redacted]"),
        (&["--token", "abc", "x"], "--token | [redacted] | x"),
        (&["--hf-token", "-abc"], "--hf-token | [redacted]"),
        (&["--password", "a b c"], "--password | [redacted]"),
        (&["-e", "WANDB_API_KEY=abc,def"], "-e | WANDB_API_KEY=[redacted]"),
        (&["--env=DB_PASSWORD=a=b"], "--env=DB_PASSWORD=[redacted]"),
        (
            &["trainer.logger.api_key=abc", "a=b"],
            "trainer.logger.api_key=[redacted] | a=b",
        ),
        (&["apiKey=abc"], "apiKey=[redacted]"),
        (&["PGPASSWORD=abc"], "PGPASSWORD=[redacted]"),
        (
            &["--aws-secret-access-key", "abc"],
            "--aws-secret-access-key | [redacted]",
        ),
        (&["--credentials=abc"], "--credentials=[redacted]"),
        (&["--auth", "user:abc"], "--auth | [redacted]"),
        (
            &["-H", "Authorization: Bearer abc"],
            "-H | Authorization: [redacted]",
        ),
        (&["-HAuthorization:abc"], "-HAuthorization:[redacted]"),
        (&["-H", "Cookie: a=b; c=d"], "-H | Cookie: [redacted]"),
        (&["-H", "X-Api-Key: abc"], "-H | X-Api-Key: [redacted]"),
        (&["Bearer", "abc"], "Bearer | [redacted]"),
        (
            &["postgres://me:a@b@host:5432/db"],
            "postgres://me:[redacted]@host:5432/db",
        ),
        (
            &["--url=https://me:abc@host/x"],
            "--url=https://me:[redacted]@host/x",
        ),
        (&["https://0123456789abcdef0123@host"], "https://[redacted]@host"),
        (
            &["https://host/x?a=1&token=abc&b=2&api_key=d#e"],
            "https://host/x?a=1&token=[redacted]&b=2&api_key=[redacted]#e",
        ),
        (
            &["sh", "-c", "HF_TOKEN='a b' train --password \"c d\" --steps 5"],
            "sh | -c | HF_TOKEN='[redacted]' train --password \"[redacted]\" --steps 5",
        ),
        (
            &["{\"api_key\": \"abc\", \"model\": \"x\"}"],
            "{\"api_key\": \"[redacted]\", \"model\": \"x\"}",
        ),
        (
            &["{\"api_key\":\"abc\",\"n\":{\"secret\":5},\"model\":\"x\"}"],
            "{\"api_key\":\"[redacted]\",\"n\":{\"secret\":[redacted]},\"model\":\"x\"}",
        ),
        (
            &[
                "python",
                "-c",
                "import os; os.environ[\"HF_TOKEN\"]=\"a b\"; run(5)",
            ],
            "python | -c | import os; os.environ[\"HF_TOKEN\"]=\"[redacted]\"; run(5)",
        ),
        (
            &[
                "-c",
                "os.environ['HF_TOKEN'] = 'abc'; api_key = \"a\\\"b\"; token =abc; x = 5",
            ],
            "-c | os.environ['HF_TOKEN'] = '[redacted]'; api_key = \"[redacted]\"; token =abc; x = 5",
        ),
        (
            &["{\"api_key\" : \"abc\", \"model\" : \"x\"}", "token == 5"],
            "{\"api_key\" : \"[redacted]\", \"model\" : \"x\"} | token == 5",
        ),
        (
            &["https://a.blob.core.windows.net/c?sv=2024&sig=a%2Fb&se=5"],
            "https://a.blob.core.windows.net/c?sv=2024&sig=[redacted]&se=5",
        ),
        (
            &["https://b.s3.amazonaws.com/x?X-Amz-Date=5&X-Amz-Signature=abc"],
            "https://b.s3.amazonaws.com/x?X-Amz-Date=5&X-Amz-Signature=[redacted]",
        ),
        (
            &["{\"credentials\":{\"user\":\"a}\",\"value\":[\"b\",\"c d\"]},\"n\":1}"],
            "{\"credentials\":[redacted],\"n\":1}",
        ),
        (
            &["{\"env\":\"{\\\"api_key\\\":\\\"a,b c\\\",\\\"n\\\":1}\"}"],
            "{\"env\":\"{\\\"api_key\\\":\\\"[redacted]\\\",\\\"n\\\":1}\"}",
        ),
        (
            &["postgres://me:p@ss/word@host:5432/db", "redis://:a/b@host"],
            "postgres://me:[redacted]@host:5432/db | redis://:[redacted]@host",
        ),
        (&["login", "hf_AbCdEfGhIjKlMnOp12345"], "login | [redacted]"),
        (&["x=sk-proj-AbCdEfGhIjKlMnOp12345"], "x=[redacted]"),
    ] {
        assert_eq!(redacted(words), expected);
    }
}

#[test]
fn words_of_training_are_none() {
    for words in [
        &["torchrun", "--nproc-per-node", "8", "train.py"][..],
        &[
            "--tokenizer",
            "gpt2",
            "--max-tokens",
            "2048",
            "--tokens-per-step=5",
            "--pad-token",
            "<pad>",
        ],
        &[
            "--num-key-value-heads",
            "8",
            "--key-size=64",
            "--sort-key",
            "loss",
            "--json-keys",
            "text",
        ],
        &[
            "--pad-token-id=0",
            "--token-dim",
            "5",
            "--eos-token=</s>",
            "tokenizer.name=x",
        ],
        &[
            "--secretary=x",
            "--keyboard",
            "a",
            "--authors",
            "b",
            "--monkey",
            "c",
            "--compass=d",
        ],
        &[
            "--token-file",
            "/run/secrets/x",
            "--password-file=/a",
            "--key-id=5",
        ],
        &[
            "--rdzv-endpoint=key-server:29500",
            "key-value:5",
            "ssh://git@host/x",
            "http://host:80/a@b",
        ],
        &[
            "--use-auth",
            "train.py",
            "--token=true",
            "--token=$HF_TOKEN",
            "--password=",
        ],
        &[
            "--forward-pass",
            "x",
            "PWD=/home",
            "task-mask-sk-learn-preprocessing",
        ],
        &[
            "--model=/data/hf_models_of_the_group/llama",
            "--normalize",
            "passes=3",
        ],
        &["ünïcödé=5", "", "=", ":", "=:=", "--", "-", "://", "://@", "?&="],
    ] {
        assert_eq!(redacted(words), words.join(" | "));
    }
}

#[test]
fn variables_are_hidden_by_their_names() {
    let mut variables: BTreeMap<String, String> = [
        ("NCCL_AUTH_TOKEN", "abc def"),
        ("NCCL_SOCKET_IFNAME", "eth0"),
        ("CUDA_PROXY", "http://me:abc@proxy"),
        ("NCCL_COMM_KEY", ""),
    ]
    .map(|(name, value)| (name.to_owned(), value.to_owned()))
    .into();
    environment(&mut variables);
    let values: Vec<&str> = variables.values().map(String::as_str).collect();
    assert_eq!(values, ["http://me:[redacted]@proxy", REDACTED, "", "eth0"]);
}

/// Each way of writing one; X is the secret, and `|` is between the arguments of a command.
#[test]
fn secrets_are_hidden_however_they_are_written() {
    for (about, spellings) in [
        (
            "headers",
            &[
                r#"{"Authorization": "Bearer X"}"#,
                "{'Cookie': 'a=b; c=X'}",
                "-H|x-api-key:X",
                "-H|Private-Token:X",
                "authorization:Bearer X",
                r#"Authorization: Digest username="a", response="X""#,
                "Authorization: Bearer it's X",
                r#"sh|-c|curl -H 'Cookie: a="b"; c=X' https://h"#,
                "{'Authorization': 'Bearer ' + 'X'}",
                "-H|Authorization:|Bearer|X",
                "password:X",
                "{user: me,api_key:X}",
                "<password>X</password>",
            ][..],
        ),
        (
            "more than one word",
            &[
                "--token=a b X",
                "password = a X",
                "password: my pass X",
                "password: >-\n  a\n  X\nb: 1",
                "token: &a X",
                "tokens:\n- X",
                "--password|=|X",
                "--password=none X",
                "--password|--X",
            ],
        ),
        (
            "shells",
            &[
                "sh|-c|HF_TOKEN=$'a X' train",
                r#"sh|-c|HF_TOKEN=$"X""#,
                "sh|-c|: ${HF_TOKEN:=X}",
                "sh|-c|HF_TOKEN=${T:-X}",
                "sh|-c|HF_TOKEN=$(echo X)",
                "sh|-c|HF_TOKEN=`echo X`",
                r"sh|-c|HF_TOKEN=abc\ X",
                r#"sh|-c|HF_TOKEN="abc"'X'"#,
                r#"sh|-c|HF_TOKEN="abc"" X""#,
                "sh|-c|[[ $TOKEN == X ]]",
                "--token=$ecretX",
                "setenv HF_TOKEN X",
                "machine h login me password X",
            ],
        ),
        (
            "Python",
            &[
                "-c|token = \"\"\"\na X\"\"\"",
                r#"-c|token = f"a X""#,
                r#"-c|token = "a" + "X""#,
                "-c|token = (\"a\"\n \"X\")",
                "-c|token = \\\n \"X\"",
                r#"-c|token: str = "X""#,
                r#"-c|token += "X""#,
                r#"-c|token = os.environ.get("T") or "X""#,
                r#"-c|os.environ.setdefault("HF_TOKEN", "X")"#,
                "-c|os.putenv('HF_TOKEN','X')",
                r#"-c|dict(auth=("me", "X"))"#,
                "-c|setattr(a, 'token', 'X')",
            ],
        ),
        (
            "names",
            &[
                "--api-keys|X",
                "--token2=X",
                "--ToKeN|X",
                "--pass|X",
                "--pwd|X",
                "--pat=X",
                "--jwt|X",
                "--sas=X",
                "--dsn|X",
                "--connection-string=X",
                "--psk|X",
                "--token-value=X",
                "--auth-header|X",
                "--api-key-id|X",
                "--key|X",
                "--bot-token|X",
            ],
        ),
        (
            "programs and pairs",
            &[
                "curl|-u|me:X",
                "curl|--user=me:X",
                "curl|-ume:X",
                "curl|--proxy-user|me:X",
                "curl|-b|a=X",
                "sh|-c|curl -u me:X https://h",
                "sshpass|-p|X|ssh",
                "mysql|-pX",
                "docker|login|-p|X",
                "redis-cli|-a|X",
                "wandb|login|X",
                r#"{"name":"HF_TOKEN","value":"X"}"#,
                "name: HF_TOKEN\nvalue: X",
                "--env|HF_TOKEN|X",
                "git|config|user.token|X",
                "aws|configure|set|aws_secret_access_key|X",
                r#"{"token": "a\\", "password": "X"}"#,
                r#"{"token": "a\"X"}"#,
            ],
        ),
        (
            "addresses",
            &[
                "https://X@host",
                "https://X:x-oauth-basic@github.com/a",
                "https://hooks.slack.com/services/T0/B0/X",
                "https://discord.com/api/webhooks/1/X",
                "https://api.telegram.org/bot1:X/send",
                "https://host/x#access_token=X",
            ],
        ),
        (
            "keys",
            &[
                "-----BEGIN|PRIVATE|KEY-----|X|-----END|PRIVATE|KEY-----",
                "---- BEGIN SSH2 PRIVATE KEY ----\nX\n---- END SSH2 PRIVATE KEY ----",
                "PuTTY-User-Key-File-2: ssh-rsa\nPrivate-Lines: 1\nX",
            ],
        ),
    ] {
        for spelling in spellings {
            let spelling = spelling.replace('X', "Vz9kQ9wLm3Tt");
            let words: Vec<&str> = spelling.split('|').collect();
            let hidden = redacted(&words);
            assert!(
                !hidden.contains("Vz9k") && hidden.contains(REDACTED),
                "{about}: {spelling:?} is {hidden:?}"
            );
        }
    }
    let block = redacted(&["password: |\n  a\n  b\nport: 1"]);
    assert_eq!(block, "password: [redacted]\nport: 1");
}

#[test]
fn secrets_are_known_by_their_form() {
    for beginning in [
        "hf_",
        "ghp_",
        "ghu_",
        "ghr_",
        "ghs_",
        "gho_",
        "github_pat_",
        "xapp-1-",
        "xoxa-2-",
        "xoxb-1-",
        "xoxp-1-",
        "npm_",
        "pypi-",
        "dckr_pat_",
        "hvs.",
        "r8_",
        "gsk_",
        "sk-proj-",
        "sk_live_",
        "rk_live_",
        "SG.",
        "ya29.",
        "dop_v1_",
        "glpat-",
        "glptt-",
        "AIza",
        "eyJ",
        "AGE-SECRET-KEY-1",
    ] {
        let word = format!("x/{beginning}aB3dEfGhIjKlMnOpQrStUvWx");
        assert_eq!(redacted(&[&word]), "x/[redacted]", "{beginning}");
    }
    assert_eq!(redacted(&["dapi0123456789abcdef0123456789abcdef"]), REDACTED);
    assert_eq!(redacted(&["AKIAIOSFODNN7EXAMPLE"]), REDACTED);
    for word in [
        "sk-learn-Pipeline-v2-classifier",
        "ASIA-pacific-data-2024-WEST",
        "eyJ-named-dataset-2024-Of_Mine",
        "npm_packages_of_2024_and_more",
    ] {
        assert_eq!(redacted(&[word]), word);
    }
}

#[test]
fn keys_and_tokens_of_training_are_none() {
    for line in [
        "--rng-key 42 --seed-key 42 --key image --key=image --loss-key x5 --feature-key=x5",
        "--checkpoint-key model_ema --config-key x --pretrained-key resnet50_imagenet1k --pass train",
        "--placeholder-token <cat> --initializer-token toy --eot-token <eot> --fim-token <fim>",
        "--vision-token <img> --patch-token=5 --prefix-token=5 --tokens 100 --token-id 5",
        "--password-strength-dataset x --run-name auth-fix --volume secrets:/run/secrets -p 8080",
    ] {
        let words: Vec<&str> = line.split(' ').collect();
        assert_eq!(redacted(&words), words.join(" | "));
    }
    for script in [
        "sorted(a, key=len)",
        "max(d, key = d.get)",
        "attn(query=q, key=k, value=v)",
        "key = lambda x: x[1]",
        "token = tokenizer.decode(ids)",
        "x = tokens[token : token+5]",
        "for key, value in d.items(): print(key, value)",
        r#"{"key":"value5","tokens":5}"#,
    ] {
        assert_eq!(
            redacted(&["python", "-c", script]),
            format!("python | -c | {script}")
        );
    }
}

/// Pieces of which texts are made that are hard to read.
const PIECES: &str = r#"(token|password|key|HF_TOKEN|value|login|curl|-u|-----BEGIN|-----END|-----|://|//|a|é|Vz9kQ9wLm3Tt|true|\$|\$\(|\$\{|`|\\|"|'|"""|=|:|==|,|;|&|\?|@|\(|\)|\[|\]|\{|\}|<|>|\||-|--| |
|\[redacted\]){0,14}"#;

/// CPU time of this thread, seconds: what else the machine does is no part of it.
fn cpu_seconds() -> f64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: it is valid for the call's time.
    let status = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    assert_eq!(status, 0);
    time.tv_sec as f64 + time.tv_nsec as f64 * 1e-9
}

/// Sixteen times as much text takes about sixteen times as long; a second power would be 256. Of some runs the fastest counts.
#[test]
fn time_grows_as_texts_do() {
    let seconds = |piece: &str, bytes: usize| {
        let text = piece.repeat(bytes / piece.len());
        let run = |_| {
            let mut words = vec!["-c".to_owned(), text.clone()];
            let start = cpu_seconds();
            command(&mut words);
            cpu_seconds() - start
        };
        (0..3).map(run).fold(f64::INFINITY, f64::min)
    };
    for piece in [
        "a://",
        "a=",
        "key=",
        "token:",
        "token,",
        "\"",
        "\\",
        "(",
        "`",
        "token=(",
        "a://b:c@",
        "-----BEGIN",
        "&token=",
        "key \"",
        "'''",
        "token\"",
        "password=true ",
        "[redacted]",
        "é",
        "hooks.slack.com/services/",
    ] {
        let (short, long) = (seconds(piece, 1 << 13), seconds(piece, 1 << 17));
        assert!(
            long < 80.0 * short + 0.02,
            "{piece:?}: {short} s, and sixteen times as much {long} s"
        );
    }
}

proptest! {
    #[test]
    fn whatever_is_given_twice_is_the_same(words in prop::collection::vec(".{0,40}", 0..5)) {
        let mut once = words;
        command(&mut once);
        let mut twice = once.clone();
        command(&mut twice);
        prop_assert_eq!(once, twice);
    }

    #[test]
    fn hard_texts_are_read_to_their_end(words in prop::collection::vec(PIECES, 0..4)) {
        let mut hidden = words.clone();
        command(&mut hidden);
        prop_assert_eq!(hidden.len(), words.len());
        environment(&mut words.iter().map(|word| (word.clone(), word.clone())).collect());
    }

    #[test]
    fn a_value_of_a_secret_is_never_left(
        name in "(--?)?((hf|github|my[-_]api|[a-z]{1,5}[-_.]auth)[-_.])?(token|secret|password|api[-_]?key)",
        value in "[A-Za-z0-9+/_]{8,40}",
        before in "[a-z]{0,3}",
    ) {
        for words in [vec![before.clone(), format!("{name}={value}")], vec![format!("--{name}"), value.clone()]] {
            let mut hidden = words.clone();
            command(&mut hidden);
            prop_assert!(!hidden.concat().contains(&value), "{words:?} {hidden:?}");
        }
    }
}

/// Of several recorders one may have been told to keep everything: what the others wrote stays hidden.
#[test]
fn all_recorders_have_to_keep_arguments() {
    use crate::manifest::Manifest;
    let manifest = |keep| {
        let mut manifest = Manifest::new();
        manifest.options.keep_arguments = keep;
        manifest.command = vec!["train".to_owned(), "--token=abc".to_owned()];
        manifest
    };
    for (first, second, shown) in [
        (true, true, "--token=abc"),
        (true, false, "--token=[redacted]"),
        (false, true, "--token=[redacted]"),
    ] {
        let mut all = manifest(first);
        all.absorb(manifest(second));
        all.redact();
        assert_eq!(all.command[1], shown, "{first} {second}");
    }
}
