//! Names of sets of endpoints: `namespace shop (12 pods)`, `shop/deploy/web (3 pods)`, `all nodes`.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::ends::{EndKind, NamedEnd, NamedEnds};

/// Names sets of endpoints.
#[derive(Debug)]
pub(crate) struct Names<'e> {
    ends: &'e NamedEnds,
    /// The selectable pods of each space.
    pods: BTreeMap<usize, Vec<u32>>,
    /// The Services of each space.
    services: BTreeMap<usize, Vec<u32>>,
    /// The number of endpoints of each type.
    totals: HashMap<EndKind, usize>,
    /// The workloads of each space.
    workloads: HashMap<usize, Vec<&'e (String, Vec<u32>)>>,
}

impl<'e> Names<'e> {
    /// Prepares names for sets of these endpoints.
    pub(crate) fn new(ends: &'e NamedEnds) -> Names<'e> {
        let mut names = Names {
            ends,
            pods: BTreeMap::new(),
            services: BTreeMap::new(),
            totals: HashMap::new(),
            workloads: HashMap::new(),
        };
        for (id, end) in ends.numbered() {
            *names.totals.entry(end.kind).or_default() += 1;
            if end.kind.is_selectable() {
                names.pods.entry(end.space).or_default().push(id);
            } else if end.kind == EndKind::Service {
                names.services.entry(end.space).or_default().push(id);
            }
        }
        for workload in &ends.workloads {
            let first = workload.1.first().and_then(|id| ends.get(*id));
            if let Some(first) = first {
                names
                    .workloads
                    .entry(first.space)
                    .or_default()
                    .push(workload);
            }
        }
        names
    }

    /// Names a set, in ascending order. The set is the union of the names.
    pub(crate) fn of(&self, group: &[u32]) -> Vec<String> {
        let mut by_kind: BTreeMap<EndKind, Vec<u32>> = BTreeMap::new();
        for id in group {
            if let Some(end) = self.ends.get(*id) {
                let kind = if end.kind.is_selectable() {
                    EndKind::Pod
                } else {
                    end.kind
                };
                by_kind.entry(kind).or_default().push(*id);
            }
        }
        let of_kind = |kind| by_kind.get(&kind).map_or(&[][..], Vec::as_slice);
        let is_whole = |kind| of_kind(kind).len() == self.total(kind);
        let others = [EndKind::HostPod, EndKind::Node, EndKind::Network];
        let several = others.iter().filter(|it| self.total(**it) > 0).count() > 0;
        let is_all = several
            && self.total(EndKind::Pod) > 0
            && is_whole(EndKind::Pod)
            && others.iter().all(|it| is_whole(*it));
        let mut words = Vec::new();
        if is_all {
            words.push("all endpoints".to_owned());
        } else {
            self.pods(of_kind(EndKind::Pod), &mut words);
            for (kind, all) in [
                (EndKind::HostPod, "host-network pods"),
                (EndKind::Node, "nodes"),
                (EndKind::Network, "networks outside"),
            ] {
                self.plain(of_kind(kind), kind, all, &mut words);
            }
        }
        self.services(of_kind(EndKind::Service), &mut words);
        words
    }

    fn total(&self, kind: EndKind) -> usize {
        let of = |kind| self.totals.get(&kind).copied().unwrap_or(0);
        if kind.is_selectable() {
            of(EndKind::Pod) + of(EndKind::Template)
        } else {
            of(kind)
        }
    }

    /// Names endpoints of a type without namespaces.
    fn plain(&self, group: &[u32], kind: EndKind, all: &str, words: &mut Vec<String>) {
        if group.len() == self.total(kind) && group.len() > 1 {
            words.push(format!("all {all} ({})", group.len()));
        } else {
            words.extend(group.iter().map(|id| self.ends.label(*id).to_owned()));
        }
    }

    fn services(&self, group: &[u32], words: &mut Vec<String>) {
        if group.len() == self.total(EndKind::Service) && group.len() > 2 {
            words.push(format!("all Services ({})", group.len()));
            return;
        }
        for (space, its) in self.by_space(group) {
            let all = self.services.get(&space).map_or(0, Vec::len);
            if its.len() == all && all > 2 {
                let name = self.ends.space(space);
                words.push(format!("Services of {name} ({all})"));
            } else {
                words.extend(its.iter().map(|id| self.ends.label(*id).to_owned()));
            }
        }
    }

    fn by_space(&self, group: &[u32]) -> BTreeMap<usize, Vec<u32>> {
        let mut spaces: BTreeMap<usize, Vec<u32>> = BTreeMap::new();
        for id in group {
            if let Some(end) = self.ends.get(*id) {
                spaces.entry(end.space).or_default().push(*id);
            }
        }
        spaces
    }

    /// Names pods: all, all but some, or namespace by namespace.
    fn pods(&self, group: &[u32], words: &mut Vec<String>) {
        let total = self.total(EndKind::Pod);
        if group.is_empty() {
            return;
        }
        if group.len() == total && total > 1 {
            words.push(format!("all pods ({total})"));
            return;
        }
        let spaces = self.by_space(group);
        let size = |space: &usize| self.pods.get(space).map_or(0, Vec::len);
        let whole = spaces
            .iter()
            .filter(|(space, its)| its.len() == size(space));
        let n_whole = whole.count();
        let inside: BTreeSet<u32> = group.iter().copied().collect();
        let all_pods = self.pods.values().flatten().copied();
        let outside: Vec<u32> = all_pods.filter(|id| !inside.contains(id)).collect();
        if n_whole > 2 && self.by_space(&outside).len() < n_whole {
            let mut missing = Vec::new();
            self.each_space(&outside, &mut missing);
            let missing = missing.join(" and ");
            words.push(format!("all pods but {missing} ({} pods)", group.len()));
            return;
        }
        self.each_space(group, words);
    }

    fn each_space(&self, group: &[u32], words: &mut Vec<String>) {
        for (space, its) in self.by_space(group) {
            let all = self.pods.get(&space).map_or(0, Vec::len);
            if its.len() == all && all > 1 {
                let name = self.ends.space(space);
                words.push(format!("namespace {name} ({all} pods)"));
            } else {
                self.part_of_space(space, its, words);
            }
        }
    }

    /// Names some pods of a namespace: whole workloads, then whole families of names, then single
    /// pods.
    fn part_of_space(&self, space: usize, its: Vec<u32>, words: &mut Vec<String>) {
        let mut left: BTreeSet<u32> = its.into_iter().collect();
        let workloads = self.workloads.get(&space).into_iter().flatten();
        for (name, members) in workloads {
            if members.len() > 1 && members.iter().all(|id| left.contains(id)) {
                words.push(format!("{name} ({} pods)", members.len()));
                for id in members {
                    left.remove(id);
                }
            }
        }
        let family = |id: u32| {
            let end = self.ends.get(id).filter(|end| end.kind == EndKind::Pod)?;
            Some(end.label.rsplit_once('-')?.0)
        };
        let mut families: BTreeMap<&str, (usize, usize)> = BTreeMap::new();
        for id in self.pods.get(&space).into_iter().flatten() {
            if let Some(name) = family(*id) {
                let (all, inside) = families.entry(name).or_default();
                *all += 1;
                *inside += usize::from(left.contains(id));
            }
        }
        let mut named = BTreeSet::new();
        for id in left {
            let whole = family(id).and_then(|name| {
                let (all, inside) = families.get(name)?;
                (all == inside && *all > 1).then_some((name, *all))
            });
            match whole {
                Some((name, all)) => {
                    if named.insert(name) {
                        words.push(format!("{name}-* ({all} pods)"));
                    }
                }
                None => words.push(self.ends.label(id).to_owned()),
            }
        }
    }
}

/// Limits a list to `most` entries, the last of which counts the rest.
pub(crate) fn limited(mut words: Vec<String>, most: usize) -> Vec<String> {
    if words.len() > most {
        let more = words.len() - most.saturating_sub(1);
        words.truncate(most.saturating_sub(1));
        words.push(format!("{more} more"));
    }
    words
}

/// Names endpoints of one type and space.
pub(crate) fn kind_label(ends: &NamedEnds, names: &Names<'_>, members: &[u32]) -> String {
    let first: Option<&NamedEnd> = members.first().and_then(|id| ends.get(*id));
    match (first, members.len()) {
        (Some(first), 1) => first.label.clone(),
        _ => limited(names.of(members), 3).join(", "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn end(label: &str, kind: EndKind, space: usize) -> NamedEnd {
        NamedEnd {
            names: vec![label.to_owned()],
            label: label.to_owned(),
            kind,
            space,
        }
    }

    fn ends() -> NamedEnds {
        NamedEnds {
            list: vec![
                end("a/web-0", EndKind::Pod, 0),
                end("a/web-1", EndKind::Pod, 0),
                end("a/db-0", EndKind::Pod, 0),
                end("b/x", EndKind::Pod, 1),
                end("b/deploy/y", EndKind::Template, 1),
                end("node/n1", EndKind::Node, 2),
                end("node/n2", EndKind::Node, 2),
                end("0.0.0.0/0", EndKind::Network, 3),
                end("a/svc/web", EndKind::Service, 0),
            ],
            spaces: ["a", "b", "nodes", "outside"].map(str::to_owned).to_vec(),
            workloads: vec![("a/deploy/web".to_owned(), vec![0, 1])],
        }
    }

    #[track_caller]
    fn check(group: &[u32], expected: &[&str]) {
        let ends = ends();
        assert_eq!(Names::new(&ends).of(group), expected);
    }

    #[test]
    fn sets_are_called_by_what_they_are() {
        check(&[0, 1, 2, 3, 4, 5, 6, 7], &["all endpoints"]);
        check(&[0, 1, 2, 3, 4], &["all pods (5)"]);
        check(&[0, 1, 2], &["namespace a (3 pods)"]);
        check(&[0, 1], &["a/deploy/web (2 pods)"]);
        check(&[0, 2, 4], &["a/web-0", "a/db-0", "b/deploy/y"]);
        check(&[5, 6, 8], &["all nodes (2)", "a/svc/web"]);
        check(&[6, 7], &["node/n2", "0.0.0.0/0"]);
    }

    #[test]
    fn names_that_go_on_alike_are_one_word() {
        let mut ends = ends();
        ends.workloads.clear();
        assert_eq!(Names::new(&ends).of(&[0, 1]), ["a/web-* (2 pods)"]);
        assert_eq!(Names::new(&ends).of(&[0, 4]), ["a/web-0", "b/deploy/y"]);
    }

    #[test]
    fn the_rest_is_counted() {
        let words = ["a", "b", "c", "d"].map(str::to_owned).to_vec();
        assert_eq!(limited(words.clone(), 3), ["a", "b", "2 more"]);
        assert_eq!(limited(words.clone(), 4), words);
    }
}
