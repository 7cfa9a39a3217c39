//! Topology of Neuron devices, from the neighbors that each device reports.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use super::Neuron;

/// Topology of the links.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Topology {
    /// No links.
    Unlinked,
    /// Each device is linked to two others, and all form one ring.
    Ring,
    /// Each row and each column is a ring; devices are numbered along the rows.
    Torus {
        /// Number of rows.
        rows: u32,
        /// Number of devices per row.
        columns: u32,
    },
    /// Another topology, with this number of connected groups.
    Other {
        /// Number of groups.
        groups: usize,
    },
}

impl fmt::Display for Topology {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unlinked => f.write_str("no links between devices"),
            Self::Ring => f.write_str("linked as a ring"),
            Self::Torus { rows, columns } => write!(f, "linked as a {rows}x{columns} torus"),
            Self::Other { groups: 1 } => f.write_str("linked as one group"),
            Self::Other { groups } => write!(f, "linked as {groups} groups"),
        }
    }
}

type Links = BTreeMap<u32, BTreeSet<u32>>;

impl Neuron {
    /// Topology of the links; `None` if a device does not report its links, or if two devices disagree.
    pub fn topology(&self) -> Option<Topology> {
        let links: Links = self
            .devices
            .iter()
            .map(|device| {
                let near = device.connected.as_ref()?;
                Some((device.number, near.iter().copied().collect()))
            })
            .collect::<Option<_>>()?;
        if links.is_empty() || !is_mutual(&links) {
            return None;
        }
        if links.values().all(BTreeSet::is_empty) {
            return Some(Topology::Unlinked);
        }
        let groups = groups(&links);
        let of_two = links.values().all(|near| near.len() == 2);
        if groups == 1 && of_two {
            return Some(Topology::Ring);
        }
        Some(torus(&links).unwrap_or(Topology::Other { groups }))
    }
}

fn is_mutual(links: &Links) -> bool {
    links.iter().all(|(here, near)| {
        near.iter().all(|there| links.get(there).is_some_and(|back| back.contains(here)))
    })
}

/// Number of connected groups.
fn groups(links: &Links) -> usize {
    let mut left: BTreeSet<u32> = links.keys().copied().collect();
    let mut groups: usize = 0;
    while let Some(first) = left.pop_first() {
        groups = groups.saturating_add(1);
        let mut open = vec![first];
        while let Some(here) = open.pop() {
            let near = links.get(&here).into_iter().flatten();
            open.extend(near.copied().filter(|there| left.remove(there)));
        }
    }
    groups
}

/// Torus that has exactly these links, if any. Rings have at least three devices, because a ring of two would be a
/// double link.
fn torus(links: &Links) -> Option<Topology> {
    let count = u32::try_from(links.len()).ok()?;
    (3..=count)
        .filter(|columns| count.checked_rem(*columns) == Some(0))
        .filter_map(|columns| Some((count.checked_div(columns)?, columns)))
        .filter(|(rows, _)| *rows >= 3)
        .find(|(rows, columns)| {
            (0..count).all(|number| {
                let near = neighbors(number, *rows, *columns);
                near.is_some() && near.as_ref() == links.get(&number)
            })
        })
        .map(|(rows, columns)| Topology::Torus { rows, columns })
}

fn neighbors(number: u32, rows: u32, columns: u32) -> Option<BTreeSet<u32>> {
    let (row, column) = (number.checked_div(columns)?, number.checked_rem(columns)?);
    let round = |at: u32, by: u32, size: u32| at.checked_add(by)?.checked_rem(size);
    let at = |row: u32, column: u32| row.checked_mul(columns)?.checked_add(column);
    let near = [
        at(round(row, 1, rows)?, column)?,
        at(round(row, rows.checked_sub(1)?, rows)?, column)?,
        at(row, round(column, 1, columns)?)?,
        at(row, round(column, columns.checked_sub(1)?, columns)?)?,
    ];
    Some(near.into())
}

#[cfg(test)]
mod tests {
    use super::super::{DriverLayout, NeuronDevice};
    use super::*;

    fn topology_of(links: &[Option<&[u32]>]) -> Option<Topology> {
        let devices = (0..).zip(links).map(|(number, near)| NeuronDevice {
            number,
            connected: near.map(<[u32]>::to_vec),
            ..NeuronDevice::default()
        });
        let neuron = Neuron {
            ultraserver: std::collections::BTreeMap::new(),
            driver_version: None,
            driver_layout: DriverLayout::Known,
            logical: None,
            devices: devices.collect(),
            problems: Vec::new(),
        };
        neuron.topology()
    }

    fn grid(rows: u32, columns: u32) -> Vec<Vec<u32>> {
        (0..rows * columns)
            .map(|number| {
                let near = neighbors(number, rows, columns).unwrap();
                near.into_iter().collect()
            })
            .collect()
    }

    #[test]
    fn one_circle_is_a_ring_and_two_circles_are_two_groups() {
        let ring: [Option<&[u32]>; 4] =
            [Some(&[3, 1]), Some(&[0, 2]), Some(&[1, 3]), Some(&[2, 0])];
        assert_eq!(topology_of(&ring), Some(Topology::Ring));
        let two: [Option<&[u32]>; 6] = [
            Some(&[1, 2]),
            Some(&[0, 2]),
            Some(&[0, 1]),
            Some(&[4, 5]),
            Some(&[3, 5]),
            Some(&[3, 4]),
        ];
        assert_eq!(topology_of(&two), Some(Topology::Other { groups: 2 }));
    }

    #[test]
    fn rows_and_columns_that_close_are_a_torus() {
        for (rows, columns) in [(4, 4), (3, 5)] {
            let near = grid(rows, columns);
            let links: Vec<Option<&[u32]>> = near.iter().map(|near| Some(&near[..])).collect();
            assert_eq!(topology_of(&links), Some(Topology::Torus { rows, columns }));
        }
        assert_eq!(grid(4, 4)[0], [1, 3, 4, 12]);
    }

    #[test]
    fn unreported_or_one_sided_links_have_no_topology() {
        assert_eq!(topology_of(&[Some(&[1]), None]), None);
        assert_eq!(topology_of(&[Some(&[1]), Some(&[])]), None);
        assert_eq!(topology_of(&[Some(&[7])]), None);
        assert_eq!(topology_of(&[]), None);
        assert_eq!(topology_of(&[Some(&[]), Some(&[])]), Some(Topology::Unlinked));
        assert_eq!(topology_of(&[Some(&[1]), Some(&[0])]), Some(Topology::Other { groups: 1 }));
    }
}
