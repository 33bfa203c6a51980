//! The part of a runner that a composite action needs: it reads `action.yml`, fills in expressions,
//! and runs the steps.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde_json::{Value, json};

use crate::repository::{Repository, program};
use crate::service::{Service, TOKEN};

/// What a workflow knows when it comes to the action.
pub(crate) struct Workflow {
    pub(crate) workspace: PathBuf,
    pub(crate) event: Value,
    pub(crate) api: String,
}

/// What a run left.
#[derive(Debug)]
pub(crate) struct Run {
    /// That of the step that failed, or 0.
    pub(crate) code: i32,
    pub(crate) log: String,
    pub(crate) summary: String,
    /// Those that the action declares.
    pub(crate) outputs: BTreeMap<String, String>,
    _temporary: tempfile::TempDir,
}

impl Workflow {
    /// The checkout of a pull request: the merge of its head, which is checked out now, into `main`
    /// or whatever the first branch is.
    pub(crate) fn of_pull_request(repository: &Repository, service: &Service) -> Workflow {
        let head = repository.git(&["rev-parse", "HEAD"]);
        let branches = repository.git(&["for-each-ref", "--format=%(refname)", "refs/heads"]);
        let base = branches
            .lines()
            .find(|it| *it != "refs/heads/change")
            .unwrap();
        let base = repository.git(&["rev-parse", base]);
        repository.git(&["checkout", "--quiet", "--detach", &base]);
        repository.git(&["merge", "--quiet", "--no-ff", "-m", "merge", &head]);
        let merged = repository.git(&["rev-parse", "HEAD"]);
        repository.git(&["checkout", "--quiet", "change"]);
        repository.git(&["checkout", "--quiet", "--detach", &merged]);
        Workflow {
            workspace: repository.path().to_owned(),
            event: json!({"pull_request": {"number": 7, "base": {"sha": base}, "head": {"sha": head}}}),
            api: service.address(),
        }
    }

    /// Runs the action with these inputs; without lint by default.
    pub(crate) fn run(&self, with: &[(&str, &str)]) -> Run {
        let action = crate::yaml("action.yml");
        let declared = action["inputs"].as_object().unwrap();
        let known = Known {
            event: &self.event,
            steps: BTreeMap::new(),
            inputs: BTreeMap::new(),
        };
        let defaults = declared.iter().map(|(name, it)| {
            let value = known.fill(it["default"].as_str().unwrap());
            (name.clone(), value)
        });
        let mut inputs: BTreeMap<String, String> = defaults.collect();
        inputs.insert("lint".to_owned(), "false".to_owned());
        for (name, value) in with {
            let before = inputs.insert((*name).to_owned(), (*value).to_owned());
            assert!(before.is_some(), "the action has no input {name}");
        }
        let mut known = Known { inputs, ..known };
        let temporary = tempfile::tempdir().unwrap();
        let file = |name: &str| temporary.path().join(name);
        let (mut code, mut log) = (0, String::new());
        for (number, step) in action["runs"]["steps"]
            .as_array()
            .unwrap()
            .iter()
            .enumerate()
        {
            if !known.holds(step["if"].as_str()) {
                continue;
            }
            let (script, output) = (file("script"), file(&format!("output-{number}")));
            std::fs::write(&script, step["run"].as_str().unwrap()).unwrap();
            std::fs::write(&output, "").unwrap();
            assert_eq!(step["shell"], "sh");
            let mut command = program("sh", &self.workspace);
            let env = step["env"].as_object().unwrap().iter();
            command.arg("-e").arg(&script);
            command
                .envs(env.map(|(name, value)| (name, known.fill(value.as_str().unwrap()))))
                .env("GITHUB_ACTION_PATH", crate::root())
                .env("GITHUB_API_URL", &self.api)
                .env("GITHUB_SERVER_URL", "https://github.example")
                .env("GITHUB_REPOSITORY", "acme/cluster")
                .env("GITHUB_RUN_ID", "42")
                .env("GITHUB_WORKSPACE", &self.workspace)
                .env("GITHUB_OUTPUT", &output)
                .env("GITHUB_STEP_SUMMARY", file("summary"))
                .env("RUNNER_TEMP", temporary.path());
            let done = command.output().unwrap();
            log += &String::from_utf8(done.stdout).unwrap();
            log += &String::from_utf8(done.stderr).unwrap();
            if let Some(id) = step["id"].as_str() {
                let text = std::fs::read_to_string(&output).unwrap();
                let lines = text.lines().map(|it| it.split_once('=').unwrap());
                let lines = lines.map(|(name, value)| (name.to_owned(), value.to_owned()));
                known.steps.insert(id.to_owned(), lines.collect());
            }
            if !done.status.success() {
                code = done.status.code().unwrap();
                break;
            }
        }
        let outputs = action["outputs"].as_object().unwrap().iter();
        let outputs =
            outputs.map(|(name, it)| (name.clone(), known.fill(it["value"].as_str().unwrap())));
        let outputs = outputs.collect();
        Run {
            code,
            log,
            summary: std::fs::read_to_string(file("summary")).unwrap_or_default(),
            outputs,
            _temporary: temporary,
        }
    }
}

/// What expressions can name.
struct Known<'a> {
    event: &'a Value,
    inputs: BTreeMap<String, String>,
    steps: BTreeMap<String, BTreeMap<String, String>>,
}

impl Known<'_> {
    /// A text with `${{ }}` filled in.
    fn fill(&self, text: &str) -> String {
        let mut parts = text.split("${{ ");
        let mut filled = parts.next().unwrap().to_owned();
        for part in parts {
            let (expression, rest) = part.split_once(" }}").unwrap();
            let values = expression.split(" || ").map(|it| self.value(it));
            filled += &values
                .into_iter()
                .find(|it| !it.is_empty())
                .unwrap_or_default();
            filled += rest;
        }
        filled
    }

    fn value(&self, path: &str) -> String {
        let words: Vec<&str> = path.split('.').collect();
        match words.as_slice() {
            ["inputs", name] => self.inputs[*name].clone(),
            ["github", "token"] => TOKEN.to_owned(),
            ["steps", id, "outputs", name] => {
                let outputs = &self.steps[*id];
                outputs
                    .get(*name)
                    .unwrap_or_else(|| panic!("no output {name}"))
                    .clone()
            }
            ["github", "event", keys @ ..] => {
                let value = keys.iter().fold(self.event, |it, key| &it[*key]);
                let text = value.as_str().map(str::to_owned);
                text.unwrap_or_else(|| value.as_u64().map_or(String::new(), |it| it.to_string()))
            }
            _ => panic!("what is {path}?"),
        }
    }

    /// Whether a condition holds: none, or `A == 'word'`.
    fn holds(&self, condition: Option<&str>) -> bool {
        let Some(condition) = condition else {
            return true;
        };
        let (path, word) = condition.split_once(" == ").unwrap();
        self.value(path) == word.trim_matches('\'')
    }
}

/// The lines of a log that a runner would take for commands.
pub(crate) fn commands(log: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let mut stopped: Option<String> = None;
    for line in log.lines().map(str::trim_start) {
        if let Some(word) = &stopped {
            if line == format!("::{word}::") {
                stopped = None;
            }
        } else if let Some(word) = line.strip_prefix("::stop-commands::") {
            assert!(word.len() >= 32, "{word}");
            stopped = Some(word.to_owned());
        } else if line.starts_with("::") || line.contains("##[") {
            found.push(line);
        }
    }
    assert_eq!(stopped, None, "commands stay stopped");
    found
}
