//! Tests of the time since which the desired offer is not effective.

use octavo_kubelet::device_plugin::allocation_response::DeviceResponder;
use octavo_node::sharing::Offer;

use super::*;
use crate::sharing::machine::{HostDevices, HostPaths};

/// A backend without any desired offer yet.
fn backend() -> EmbeddedBackend {
    let nowhere = PathBuf::from("/nowhere");
    let places = HostPaths { proc: nowhere.clone(), dev: nowhere.clone(), cdi: nowhere.clone() };
    let responder = DeviceResponder::new([], Box::new(HostDevices::new(places)));
    let (_, report) = watch::channel(Arc::default());
    let (_, kubelet_report) = watch::channel(Arc::default());
    let settings = EmbeddedSettings {
        strategy: MigStrategy::None,
        deadline: Duration::from_mins(3),
        withhold_after: None,
        follows_node: false,
        xids: XidTable::default(),
        nvidia_smi: nowhere,
        state: None,
    };
    EmbeddedBackend::new((Arc::default(), Arc::new(responder)), report, kubelet_report, settings)
}

/// An offer of `gpus` with `replicas` each.
fn offers(gpus: &[&str], replicas: u32) -> Offers {
    let units = gpus.iter().map(|uuid| Unit {
        uuid: (*uuid).to_owned(),
        pci: PciAddress::new(0, 7, 0, 0).unwrap(),
        partition: None,
        replicas: Some(replicas),
        memory: None,
        memory_per_replica: None,
        numa_node: None,
    });
    Offers {
        resources: vec![Offer {
            name: ResourceName::gpu(),
            fail_requests_greater_than_one: false,
            units: units.collect(),
        }],
    }
}

#[test]
fn wait_starts_when_the_current_desired_offer_is_first_pending() {
    let mut backend = backend();
    let mut waited = |waits, wanted: &Offers, now| {
        let now = Duration::from_secs(now);
        backend.pending_for(waits, wanted, now).as_secs()
    };
    let by_four = offers(&["GPU-a", "GPU-b"], 4);
    assert_eq!(waited(true, &by_four, 10), 0);
    assert_eq!(waited(true, &by_four, 70), 60);
    // A GPU was replaced: the desired number is the same.
    assert_eq!(waited(true, &offers(&["GPU-a", "GPU-c"], 4), 100), 90);
    // A different desired number has its own time.
    assert_eq!(waited(true, &offers(&["GPU-a", "GPU-c"], 2), 110), 0);
    assert_eq!(waited(true, &by_four, 120), 0);
    assert_eq!(waited(true, &by_four, 300), 180);
    // The offer is effective; a later delay counts from its own start.
    assert_eq!(waited(false, &by_four, 301), 0);
    assert_eq!(waited(true, &by_four, 400), 0);
    assert_eq!(waited(true, &by_four, 401), 1);
}
