//! A service with the comments of one pull request, on the loopback interface.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

/// The token that the service knows.
pub(crate) const TOKEN: &str = "ghs_0123456789abcdefghijABCDEFGHIJ012345";

/// Who wrote a comment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Author {
    login: String,
    kind: &'static str,
}

impl Author {
    pub(crate) fn person(login: &str) -> Author {
        Author {
            login: login.to_owned(),
            kind: "User",
        }
    }

    /// The author of comments with a workflow's token.
    pub(crate) fn bot() -> Author {
        Author {
            login: "github-actions[bot]".to_owned(),
            kind: "Bot",
        }
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Comment {
    pub(crate) body: String,
    id: u64,
    author: Author,
}

/// A request.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) line: String,
    pub(crate) headers: String,
    pub(crate) body: String,
}

#[derive(Debug, Default)]
struct State {
    comments: Vec<Comment>,
    requests: Vec<Request>,
    refuses: bool,
    escapes: bool,
    /// The owner of the token; none: the workflow.
    owner: Option<String>,
}

/// A running service. It goes on until the test's process ends.
pub(crate) struct Service {
    state: Arc<Mutex<State>>,
    address: String,
}

impl Service {
    pub(crate) fn start() -> Service {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let state = Arc::new(Mutex::new(State::default()));
        let shared = Arc::clone(&state);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                // One who goes away in the middle is not our mistake.
                let _ = answer(&stream, &shared);
            }
        });
        Service { state, address }
    }

    pub(crate) fn address(&self) -> String {
        self.address.clone()
    }

    pub(crate) fn comments(&self) -> Vec<Comment> {
        self.state.lock().unwrap().comments.clone()
    }

    pub(crate) fn requests(&self) -> Vec<Request> {
        self.state.lock().unwrap().requests.clone()
    }

    pub(crate) fn add(&self, author: Author, body: &str) {
        self.state.lock().unwrap().add(author, body);
    }

    /// As for pull requests of forks.
    pub(crate) fn refuse_to_write(&self) {
        self.state.lock().unwrap().refuses = true;
    }

    /// Whether angle brackets are written as `\u003c`, which is the same JSON.
    pub(crate) fn escape_angles(&self, escapes: bool) {
        self.state.lock().unwrap().escapes = escapes;
    }

    pub(crate) fn token_of(&self, login: &str) {
        self.state.lock().unwrap().owner = Some(login.to_owned());
    }
}

impl State {
    fn add(&mut self, author: Author, body: &str) {
        let id = 3_000_000_000 + self.comments.len() as u64;
        self.comments.push(Comment {
            body: body.to_owned(),
            id,
            author,
        });
    }

    fn handle(&mut self, request: &Request) -> (u16, String) {
        let words: Vec<&str> = request.line.split(' ').collect();
        let [method, path, "HTTP/1.1"] = words.as_slice() else {
            return (400, String::new());
        };
        let token = format!("authorization: bearer {}\r\n", TOKEN.to_lowercase());
        if !request.headers.to_lowercase().contains(&token) {
            return (401, "{}".to_owned());
        }
        let comments = "/repos/acme/cluster/issues/7/comments";
        let (path, query) = path.split_once('?').unwrap_or((path, ""));
        match (*method, path) {
            ("GET", "/user") => match &self.owner {
                Some(login) => (200, json!({"login": login, "id": 1}).to_string()),
                None => (
                    403,
                    json!({"message": "Resource not accessible by integration"}).to_string(),
                ),
            },
            ("GET", _) if path == comments => {
                let page = query.strip_prefix("per_page=100&page=").unwrap();
                let skipped = 100 * (page.parse::<usize>().unwrap() - 1);
                let shown = self.comments.iter().skip(skipped).take(100);
                let list = shown.map(|it| self.text(it)).collect::<Vec<String>>();
                (200, format!("[{}]", list.join(",")))
            }
            _ if self.refuses => (403, "{}".to_owned()),
            ("POST", _) if path == comments => {
                let author = self
                    .owner
                    .as_deref()
                    .map_or_else(Author::bot, Author::person);
                self.add(author, &body(request));
                (201, "{}".to_owned())
            }
            ("PATCH", _) => {
                let id = path.strip_prefix("/repos/acme/cluster/issues/comments/");
                let id: u64 = id.unwrap().parse().unwrap();
                match self.comments.iter_mut().find(|it| it.id == id) {
                    Some(comment) => {
                        comment.body = body(request);
                        (200, "{}".to_owned())
                    }
                    None => (404, "{}".to_owned()),
                }
            }
            _ => (404, "{}".to_owned()),
        }
    }

    /// A comment with the text around it: other ids, logins and types, before and after.
    fn text(&self, comment: &Comment) -> String {
        let Comment { id, author, .. } = comment;
        let url = format!("https://api.example/repos/acme/cluster/issues/comments/{id}");
        let user = json!({"login": author.login, "id": 41, "node_id": "U_1", "type": author.kind, "site_admin": false});
        let app = json!({"id": 15, "slug": "x", "owner": {"login": "acme", "id": 9, "type": "Bot"}, "events": ["a", "b"]});
        let body = Value::from(comment.body.as_str());
        let text = format!(
            r#"{{"url":"{url}", "id": {id},"node_id":"IC_1","user":{user},"author_association":"NONE","body":{body},"reactions":{{"id":3,"+1":0}},"performed_via_github_app":{app}}}"#
        );
        if self.escapes {
            return text.replace('<', r"\u003c").replace('>', r"\u003e");
        }
        text
    }
}

fn body(request: &Request) -> String {
    let sent: Value = serde_json::from_str(&request.body).unwrap();
    sent["body"].as_str().unwrap().to_owned()
}

fn answer(stream: &TcpStream, state: &Mutex<State>) -> std::io::Result<()> {
    stream.set_read_timeout(Some(std::time::Duration::from_secs(30)))?;
    let mut reader = BufReader::new(stream);
    let mut line = String::new();
    reader.read_line(&mut line)?;
    let mut headers = String::new();
    while !headers.ends_with("\r\n\r\n") && headers != "\r\n" {
        if reader.read_line(&mut headers)? == 0 {
            return Ok(());
        }
    }
    let lower = headers.to_lowercase();
    let mut writer = stream;
    if lower.contains("expect: 100-continue") {
        writer.write_all(b"HTTP/1.1 100 Continue\r\n\r\n")?;
    }
    let length = lower
        .lines()
        .find_map(|it| it.strip_prefix("content-length: "));
    let length = length.map_or(0, |it| it.trim().parse::<usize>().unwrap());
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    let request = Request {
        line: line.trim_end().to_owned(),
        headers,
        body: String::from_utf8(body).unwrap(),
    };
    let (status, text) = {
        let mut state = state.lock().unwrap();
        state.requests.push(request.clone());
        state.handle(&request)
    };
    write!(
        writer,
        "HTTP/1.1 {status} status\r\nContent-Type: application/json; charset=utf-8\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{text}",
        text.len()
    )
}
