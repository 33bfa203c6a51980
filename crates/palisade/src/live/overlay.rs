//! Lays files over a cluster: an object of both counts as in the files.

use std::collections::{BTreeSet, HashSet};

use palisade_api::{Kind, Manifests, Options, Source, SourceId, read};

/// Reads files and a cluster. The last `n_live` sources are the cluster's; an object of the files
/// replaces that of the cluster with the same kind, namespace and name.
pub(crate) fn read_over<'a>(
    sources: &'a [Source],
    n_live: usize,
    options: Options,
    progress: &(dyn Fn(usize) + Sync),
) -> Manifests<'a> {
    let n_files = sources.len().saturating_sub(n_live);
    let Some((files, live)) = sources.split_at_checked(n_files) else {
        return read(sources, options, progress);
    };
    if files.is_empty() || live.is_empty() {
        return read(sources, options, progress);
    }
    let above = read(files, options, progress);
    let below = read(live, options, progress);
    lay(above, below, n_files)
}

fn lay<'a>(mut above: Manifests<'a>, below: Manifests<'a>, n_files: usize) -> Manifests<'a> {
    let Manifests {
        mut objects,
        mut problems,
        skipped,
        mut invalid,
        mut dropped,
    } = below;
    let in_files: HashSet<(Kind, &str, &str)> = above
        .objects
        .iter()
        .map(|it| {
            let namespace = it.namespace().unwrap_or_default();
            (it.kind, namespace, &*it.metadata.name)
        })
        .collect();
    let mut replaced: BTreeSet<String> = BTreeSet::new();
    objects.retain(|it| {
        let namespace = it.namespace().unwrap_or_default();
        let stays = !in_files.contains(&(it.kind, namespace, &*it.metadata.name));
        if !stays {
            replaced.insert(it.id());
            if !it.valid
                && let Some(count) = invalid.get_mut(it.kind.name())
            {
                *count = count.saturating_sub(1);
            }
        }
        stays
    });
    problems.retain(|it| !it.object.as_ref().is_some_and(|id| replaced.contains(id)));
    invalid.retain(|_, count| *count > 0);
    // The cluster was read separately: its source ids start at 0, and follow those of the files
    // here.
    let shift = |id: &mut SourceId| {
        let n_files = u32::try_from(n_files).unwrap_or(u32::MAX);
        id.0 = id.0.saturating_add(n_files);
    };
    for object in &mut objects {
        shift(&mut object.source);
    }
    for problem in &mut problems {
        shift(&mut problem.source);
        if let Some(related) = &mut problem.related {
            shift(&mut related.source);
        }
    }
    for unread in &mut dropped {
        shift(&mut unread.problem.source);
    }
    above.objects.extend(objects);
    above.dropped.extend(dropped);
    above.problems.extend(problems);
    for (key, count) in skipped {
        *above.skipped.entry(key).or_default() += count;
    }
    for (kind, count) in invalid {
        *above.invalid.entry(kind).or_default() += count;
    }
    above
}

#[cfg(test)]
mod tests {
    use palisade_api::{Code, Manifests, Options, Source};

    use super::read_over;

    fn policy(name: &str, more: &str) -> String {
        format!(
            "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {{name: {name}, namespace: shop}}\n\
             spec: {{podSelector: {{}}{more}}}\n"
        )
    }

    fn sources(texts: &[(&str, String)]) -> Vec<Source> {
        let source = |(name, text): &(&str, String)| Source::new(*name, text.clone().into_bytes());
        texts.iter().map(source).collect()
    }

    fn result(sources: &[Source], n_live: usize) -> (Vec<(String, String)>, Vec<Code>) {
        let Manifests {
            objects, problems, ..
        } = read_over(sources, n_live, Options::default(), &|_| {});
        let name = |id: palisade_api::SourceId| sources[id.0 as usize].name().to_owned();
        let objects = objects.iter().map(|it| (it.id(), name(it.source)));
        (
            objects.collect(),
            problems.iter().map(|it| it.code).collect(),
        )
    }

    #[test]
    fn files_take_the_place_of_the_cluster_and_add_to_it() {
        let sources = sources(&[
            ("new.yaml", policy("db", "")),
            ("more.yaml", policy("web", "")),
            ("cluster:netpol/shop/api", policy("api", "")),
            ("cluster:netpol/shop/db", policy("db", ", wrong: 1")),
        ]);
        let (objects, problems) = result(&sources, 2);
        let expected = [
            ("netpol/shop/db", "new.yaml"),
            ("netpol/shop/web", "more.yaml"),
            ("netpol/shop/api", "cluster:netpol/shop/api"),
        ];
        let expected = expected.map(|(id, name)| (id.to_owned(), name.to_owned()));
        assert_eq!(objects, expected);
        assert!(problems.is_empty(), "{problems:?}");
    }

    #[test]
    fn the_same_object_in_two_files_is_still_an_error() {
        let sources = sources(&[
            ("a.yaml", policy("db", "")),
            ("b.yaml", policy("db", "")),
            ("cluster:netpol/shop/db", policy("db", "")),
        ]);
        let (objects, problems) = result(&sources, 1);
        assert_eq!(objects.len(), 2);
        assert_eq!(problems, [Code::DuplicateObject]);
    }

    #[test]
    fn problems_of_the_cluster_point_into_the_cluster() {
        let sources = sources(&[
            ("a.yaml", policy("db", "")),
            ("cluster:netpol/shop/api", policy("api", ", wrong: 1")),
        ]);
        let all = read_over(&sources, 1, Options::default(), &|_| {});
        let problem = &all.problems[0];
        assert_eq!(
            sources[problem.source.0 as usize].name(),
            "cluster:netpol/shop/api"
        );
        assert_eq!(all.invalid.values().sum::<usize>(), 1);
    }
}
