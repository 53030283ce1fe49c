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
            "-H | Authorization: [redacted] [redacted]",
        ),
        (&["-HAuthorization:abc"], "-HAuthorization:[redacted]"),
        (&["-H", "Cookie: a=b; c=d"], "-H | Cookie: [redacted] [redacted]"),
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
            &["https://host/x?a=1&token=abc&b=2&sig_key=d#e"],
            "https://host/x?a=1&token=[redacted]&b=2&sig_key=[redacted]#e",
        ),
        (
            &["sh", "-c", "HF_TOKEN='a b' train --password \"c d\" --steps 5"],
            "sh | -c | HF_TOKEN='[redacted] [redacted]' train --password \"[redacted] [redacted]\" --steps 5",
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
            "python | -c | import os; os.environ[\"HF_TOKEN\"]=\"[redacted] [redacted]\"; run(5)",
        ),
        (
            &[
                "-c",
                "os.environ['HF_TOKEN'] = 'abc'; api_key = \"a\\\"b\"; token =abc; x = 5",
            ],
            "-c | os.environ['HF_TOKEN'] = '[redacted]'; api_key = \"[redacted]\"; token =[redacted] x = 5",
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
            "{\"credentials\":[redacted] [redacted],\"n\":1}",
        ),
        (
            &["{\"env\":\"{\\\"api_key\\\":\\\"a,b c\\\",\\\"n\\\":1}\"}"],
            "{\"env\":\"{\\\"api_key\\\":\\\"[redacted] [redacted]\\\",\\\"n\\\":1}\"}",
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
    fn a_value_of_a_secret_is_never_left(
        name in "(--?)?([a-z]{0,5}[-_.])?(token|secret|password|api[-_]?key)",
        value in "[A-Za-z0-9+/_]{8,40}",
        before in "[a-z]{0,3}",
    ) {
        for words in [vec![before.clone(), format!("{name}={value}")], vec![format!("--{name}"), value.clone()]] {
            let mut hidden = words.clone();
            command(&mut hidden);
            let plain = MODEL_LIKE.iter().any(|word| name.contains(word));
            prop_assert!(plain || !hidden.concat().contains(&value), "{words:?} {hidden:?}");
        }
    }
}

/// Names that may be drawn and are none of a secret.
const MODEL_LIKE: [&str; 14] = [
    "pad", "eos", "bos", "unk", "mask", "sep", "cls", "stop", "per", "max", "min", "num", "next", "end",
];

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
