//! Both choices against every choice that there is, for small sets.

use std::collections::{BTreeMap, BTreeSet};

use super::candidate::Candidate;
use super::{packed, spread};

/// What is minimised, the first number first.
type Cost = Vec<usize>;

/// Numbers that look random and are the same each time (Knuth, MMIX).
struct Dice(u64);

impl Dice {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % end
    }
}

const NAMES: [&str; 8] = ["a", "b", "c", "d", "e", "f", "g", "h"];

/// Up to eight candidates: hardware with shares, on nodes, in groups.
fn candidates(dice: &mut Dice) -> Vec<Candidate<'static>> {
    let pieces = 1 + dice.below(8);
    let (nodes, groups) = (1 + dice.below(3), 1 + dice.below(4));
    let most = 1 + dice.below(2);
    let mut candidates = Vec::new();
    for hardware in NAMES.iter().take(pieces) {
        let numa = (dice.below(4) > 0).then(|| u32::try_from(dice.below(nodes)).unwrap());
        let group = (dice.below(3) > 0).then(|| NAMES[dice.below(groups)]);
        let used = dice.below(3);
        for _ in 0..=dice.below(most) {
            let (position, must) = (candidates.len(), dice.below(6) == 0);
            candidates.push(Candidate {
                position,
                hardware,
                numa,
                group,
                must,
                used,
            });
        }
    }
    candidates.truncate(8);
    candidates
}

fn hardware<'a>(chosen: &[&Candidate<'a>]) -> BTreeMap<&'a str, usize> {
    chosen
        .iter()
        .fold(BTreeMap::new(), |mut counts, candidate| {
            *counts.entry(candidate.hardware).or_default() += 1;
            counts
        })
}

fn squares<K: Ord>(keys: impl Iterator<Item = K>) -> usize {
    let mut counts: BTreeMap<K, usize> = BTreeMap::new();
    keys.for_each(|key| *counts.entry(key).or_default() += 1);
    counts.values().map(|count| count * count).sum()
}

/// What has no group is a group by itself.
fn bin<'a>(candidate: &Candidate<'a>) -> (Option<u32>, Option<&'a str>, &'a str) {
    let alone = candidate.group.map_or(candidate.hardware, |_| "");
    (candidate.numa, candidate.group, alone)
}

fn packed_cost(all: &[Candidate<'_>], chosen: &[&Candidate<'_>]) -> Cost {
    let pieces = hardware(chosen);
    let nodes: BTreeSet<_> = chosen.iter().map(|candidate| candidate.numa).collect();
    let bins: BTreeSet<_> = chosen.iter().map(|candidate| bin(candidate)).collect();
    let left = |fits: &dyn Fn(&Candidate<'_>) -> bool| {
        let left = all
            .iter()
            .filter(|c| !pieces.contains_key(c.hardware) && fits(c));
        left.map(|candidate| candidate.hardware)
            .collect::<BTreeSet<_>>()
            .len()
    };
    vec![
        NAMES.len() - pieces.len(),
        nodes.len(),
        bins.len(),
        left(&|candidate| bins.contains(&bin(candidate))),
        left(&|candidate| nodes.contains(&candidate.numa)),
    ]
}

fn spread_cost(_: &[Candidate<'_>], chosen: &[&Candidate<'_>]) -> Cost {
    vec![
        hardware(chosen).values().map(|count| count * count).sum(),
        squares(chosen.iter().map(|candidate| candidate.numa)),
        squares(chosen.iter().map(|candidate| bin(candidate))),
        chosen.iter().map(|candidate| candidate.used).sum(),
    ]
}

fn is_best(
    all: &[Candidate<'_>],
    size: usize,
    choose: fn(&[Candidate<'_>], usize) -> BTreeSet<usize>,
    cost: fn(&[Candidate<'_>], &[&Candidate<'_>]) -> Cost,
) {
    let must = all.iter().filter(|candidate| candidate.must).count();
    if size < must {
        return;
    }
    let subset = |set: u32| -> Vec<&Candidate<'_>> {
        all.iter()
            .filter(|candidate| set >> candidate.position & 1 == 1)
            .collect()
    };
    let sets = (0u32..1 << all.len()).filter(|set| set.count_ones() as usize == size);
    let sets = sets
        .map(subset)
        .filter(|chosen| chosen.iter().filter(|candidate| candidate.must).count() == must);
    let best = sets.map(|chosen| cost(all, &chosen)).min().unwrap();
    let positions = choose(all, size);
    let chosen: Vec<_> = positions.iter().map(|position| &all[*position]).collect();
    assert_eq!(
        cost(all, &chosen),
        best,
        "{size} of {all:#?}: {positions:?}"
    );
}

#[test]
fn no_choice_is_better_than_the_one_that_is_made() {
    let mut dice = Dice(6);
    for _ in 0..400 {
        let all = candidates(&mut dice);
        for size in 0..=all.len() {
            is_best(&all, size, packed::choose, packed_cost);
            is_best(&all, size, spread::choose, spread_cost);
        }
    }
}
