//! For any input, nothing is attributed twice and the sums match.

use proptest::prelude::*;

use super::*;

#[test]
fn utilization_is_sum_over_processes_capped_at_100_percent() {
    let mut reading = whole(100, &[process(1, 10), process(2, 10), process(3, 10)]);
    reading.process_utilization = [(1, 60), (2, 70)]
        .map(|(pid, percent)| ProcessUtilization {
            pid,
            compute: Percent::saturating_from(percent),
        })
        .to_vec();
    let pods = [known("a", &replica(0)), known("b", &replica(1))];
    let attribution = seen(&[(1, of("uid-a")), (2, of("uid-a")), (3, of("uid-b"))]);
    let usage = join_one(&reading, &pods, &attribution);
    let shares: Vec<_> =
        usage.devices[0].units[0].tenants.iter().map(|tenant| tenant.utilization).collect();
    assert_eq!(shares, [Some(Percent(100)), None]);
}

#[test]
fn utilization_of_a_gpu_instance_is_that_of_its_only_tenant() {
    let processes = [within(1, (1, Some(0)), 10), within(2, (2, Some(0)), 10)];
    let mut reading = divided([10, 10], &processes);
    let pods = [known("a", PARTS[0]), known("b", PARTS[2])];
    let found = |reading: &Reading, attribution: &PodAttribution| {
        let usage = join_one(reading, &pods, attribution);
        let units = usage.devices[0].units.iter().map(|unit| {
            let tenants: Vec<_> = unit.tenants.iter().map(|tenant| tenant.utilization).collect();
            (unit.utilization, tenants)
        });
        units.collect::<Vec<_>>()
    };
    let attribution = seen(&[(1, of("uid-a")), (2, of("uid-b"))]);
    let percent = |percent| Some(Percent(percent));
    // GPU instance 1 has two compute instances, of which another may use it.
    assert_eq!(
        found(&reading, &attribution),
        [(percent(70), vec![None]), (percent(70), vec![]), (percent(30), vec![percent(30)])]
    );
    // A process of an unknown pod also uses GPU instance 2.
    let attribution = seen(&[(1, of("uid-a")), (2, of("uid-x"))]);
    assert_eq!(found(&reading, &attribution)[2], (percent(30), vec![None, None]));
    let attribution = seen(&[(1, of("uid-a"))]);
    assert_eq!(found(&reading, &attribution)[2], (percent(30), vec![None]));
    for part in &mut reading.partitions {
        part.compute = None;
    }
    let attribution = seen(&[(1, of("uid-a")), (2, of("uid-b"))]);
    assert_eq!(found(&reading, &attribution)[2], (None, vec![None]));
}

/// Origin of a process: one of four pods, another pod, no pod, or gone.
fn origin() -> impl Strategy<Value = Option<ProcessOrigin>> {
    prop_oneof![
        (0_u8..5).prop_map(|pod| Some(of(&format!("uid-{pod}")))),
        Just(Some(ProcessOrigin::NoPod)),
        Just(None),
    ]
}

/// Location of a process: not reported, a GPU instance, or a compute instance.
fn place() -> impl Strategy<Value = (Option<u32>, Option<u32>)> {
    prop_oneof![
        Just((None, None)),
        (1_u32..3).prop_map(|gi| (Some(gi), None)),
        Just((Some(1), Some(0))),
        Just((Some(1), Some(1))),
        Just((Some(2), Some(0))),
    ]
}

proptest! {
    #[test]
    fn nothing_is_attributed_twice_and_sums_match_what_is_used(
        used in (0_u64..5000, 0_u64..5000),
        is_divided: bool,
        is_hidden: bool,
        has_uids: bool,
        processes in prop::collection::vec((1_u32..12, 0_u64..1000, place(), origin()), 0..12),
        pods in prop::collection::vec((0_u8..4, 0_usize..3, 0_u32..3, 0_u8..2), 0..6),
        is_current: bool,
    ) {
        let listed: Vec<Process> = processes
            .iter()
            .map(|(pid, memory, (gi, ci), _)| Process {
                gpu_instance: gi.filter(|_| is_divided),
                compute_instance: ci.filter(|_| is_divided),
                ..process(*pid, *memory)
            })
            .collect();
        let reading = if is_divided {
            divided([used.0, used.1], &listed)
        } else {
            whole(used.0, &listed)
        };
        let pods: Vec<Allocation> = pods
            .iter()
            .map(|(pod, part, number, container)| {
                let unit = if is_divided { PARTS[*part] } else { GPU };
                let pod = format!("{pod}");
                let one = known(&pod, &format!("{unit}::{number}"));
                let mut one = Allocation { uid: one.uid.filter(|_| has_uids), ..one };
                one.device.container = format!("c{container}");
                one
            })
            .collect();
        let attribution = if is_hidden {
            PodAttribution::Hidden
        } else {
            let all = processes.iter().filter_map(|(pid, .., origin)| Some((*pid, origin.clone()?)));
            PodAttribution::Inspected(all.collect())
        };
        let offers = shared(3);
        let usage = join(&UsageInput {
            readings: std::slice::from_ref(&reading),
            offers: &offers,
            allocations: &pods,
            is_current,
            attribution: &attribution,
        });
        let device = &usage.devices[0];
        let mut sums: BTreeMap<Option<u32>, (u64, u64, u64)> = BTreeMap::new();
        for unit in &device.units {
            let mut seen = BTreeSet::new();
            for tenant in &unit.tenants {
                for pid in &tenant.processes {
                    prop_assert!(seen.insert(*pid), "{pid} belongs to two tenants");
                }
                for id in &tenant.ids {
                    prop_assert_eq!(id.uuid(), unit.uuid.as_str());
                }
            }
            let tenants = unit.tenants.iter().filter_map(|one| one.memory).map(Mebibytes::get);
            let sum = sums.entry(unit.gpu_instance).or_default();
            sum.0 += tenants.sum::<u64>();
            sum.1 = unit.unattributed.unwrap().get();
            sum.2 = unit.memory.unwrap().used.get();
        }
        for (tenants, rest, used) in sums.values() {
            prop_assert_eq!(tenants + rest, *used);
        }
        let all: u64 = sums.values().map(|(tenants, ..)| tenants).sum();
        let rest = device.unattributed().unwrap().get();
        prop_assert_eq!(all + rest, device.memory.unwrap().used.get());
        // Kubelet's list is authoritative: each allocation appears exactly once, with its ids.
        for one in &pods {
            let id: ShareId = one.device.device_id.parse().unwrap();
            let of_pod = device.units.iter().flat_map(|unit| &unit.tenants).filter(|tenant| {
                tenant.pod.as_deref() == Some(one.device.pod.as_str()) && tenant.ids.contains(&id)
            });
            prop_assert_eq!(of_pod.count(), 1);
        }
    }
}
