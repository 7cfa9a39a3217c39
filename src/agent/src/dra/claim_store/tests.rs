//! The record of claims in a state directory.

use std::fs;

use tempfile::TempDir;

use super::record_file::{DRAFT_FILE_NAME, UNREADABLE_FILE_NAME};
use super::*;

fn store() -> ClaimStore {
    ClaimStore::new("node-1/gpu.octavo.dev".to_owned(), ReleasePolicy::Destroy)
}

fn uid(text: &str) -> ClaimUid {
    text.parse().unwrap()
}

fn claim(id: &str) -> AllocatedClaim {
    let key = ClaimKey { uid: uid(id), namespace: "team".to_owned(), name: id.to_owned() };
    AllocatedClaim { key, devices: Vec::new() }
}

/// A state directory with this record.
fn recorded(text: &str) -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join(FILE_NAME), text).unwrap();
    dir
}

const ONE: &str = r#"{"claims": {"uid-1": {"namespace": "team", "name": "train", "state": "prepared", "devices": [
    {"requests": ["gpu"], "created": false, "device": {"pci": "0000:07:00.0", "what": {"kind": "gpu"}}}]}}}"#;

#[test]
fn nothing_is_prepared_or_released_before_the_state_directory_is_owned() {
    let store = store();
    let refused = store.prepare(&claim("uid-1"), &Inventory::default(), (&[], None)).unwrap_err();
    assert!(matches!(refused, ClaimStoreError::NotOwner), "{refused}");
    assert!(matches!(store.release(&uid("uid-1")), Err(ClaimStoreError::NotOwner)));
    assert_eq!(store.claims(), []);
}

#[test]
fn record_survives_a_restart_and_a_released_claim_leaves_it() {
    let dir = recorded(ONE);
    let store_1 = store();
    store_1.open(dir.path()).unwrap();
    assert_eq!(store_1.claims().len(), 1);
    let changes = store_1.generation();
    store_1.release(&uid("uid-1")).unwrap();
    assert!(store_1.generation() > changes, "the node's loop must handle it");
    // An unknown claim is released already, and changes nothing.
    let (changes, text) =
        (store_1.generation(), fs::read_to_string(dir.path().join(FILE_NAME)).unwrap());
    store_1.release(&uid("uid-2")).unwrap();
    assert_eq!(store_1.generation(), changes);
    assert_eq!(fs::read_to_string(dir.path().join(FILE_NAME)).unwrap(), text);
    let store_2 = store();
    store_2.open(dir.path()).unwrap();
    assert_eq!(store_2.claims(), []);
}

#[test]
fn i12_unreadable_record_is_moved_aside() {
    for text in ["", "{", "{\"claims\": 1}", "\u{0}"] {
        let dir = recorded(text);
        let store = store();
        store.open(dir.path()).unwrap();
        assert_eq!(store.claims(), [], "{text:?}");
        let aside = fs::read_to_string(dir.path().join(UNREADABLE_FILE_NAME)).unwrap();
        assert_eq!(aside, text);
        assert!(!dir.path().join(FILE_NAME).exists());
    }
}

#[test]
fn damaged_or_lost_record_is_replaced_by_its_copy() {
    let dir = recorded(ONE);
    let store_1 = store();
    store_1.open(dir.path()).unwrap();
    store_1.mark_prepared(&uid("uid-1")).unwrap();
    store_1.release(&uid("uid-1")).unwrap();
    // The record is empty now, and so is its copy.
    fs::write(dir.path().join(FILE_NAME), "{").unwrap();
    let store_2 = store();
    store_2.open(dir.path()).unwrap();
    assert_eq!(store_2.claims(), []);
    fs::write(dir.path().join(COPY_FILE_NAME), ONE).unwrap();
    for damage in [Some("{"), None] {
        match damage {
            Some(text) => fs::write(dir.path().join(FILE_NAME), text).unwrap(),
            None => drop(fs::remove_file(dir.path().join(FILE_NAME))),
        }
        let store = store();
        store.open(dir.path()).unwrap();
        assert_eq!(store.claims().len(), 1, "{damage:?}");
        let text = fs::read_to_string(dir.path().join(FILE_NAME)).unwrap();
        assert!(text.contains("uid-1"), "both files are complete again");
    }
    // The record takes precedence.
    fs::write(dir.path().join(FILE_NAME), "{\"claims\": {}}").unwrap();
    let store_3 = store();
    store_3.open(dir.path()).unwrap();
    assert_eq!(store_3.claims(), []);
}

#[test]
fn device_of_a_claim_whose_gpu_is_gone_is_unhealthy() {
    let dir = recorded(ONE);
    let store = store();
    store.open(dir.path()).unwrap();
    let status = NodeLayoutStatus::default();
    store.finish_round(store.generation(), &Arc::new(Inventory::default()), &status, None);
    let health =
        DeviceHealth { device: "gpu-0000-07-00-0".to_owned(), problem: Some("failing".to_owned()) };
    assert_eq!(store.devices().borrow().devices, [health]);
}

#[test]
fn closed_store_changes_no_record() {
    let dir = recorded(ONE);
    let store = store();
    store.open(dir.path()).unwrap();
    let text = fs::read_to_string(dir.path().join(FILE_NAME)).unwrap();
    store.close();
    assert!(!store.is_owner());
    assert!(matches!(store.release(&uid("uid-1")), Err(ClaimStoreError::NotOwner)));
    assert!(matches!(store.mark_prepared(&uid("uid-1")), Err(ClaimStoreError::NotOwner)));
    assert!(store.current().is_err(), "I1: unknown, not none");
    assert_eq!(fs::read_to_string(dir.path().join(FILE_NAME)).unwrap(), text);
}

#[test]
fn failed_preparation_does_not_release_what_another_call_prepared() {
    let dir = recorded(&ONE.replace("prepared", "preparing"));
    let store = store();
    store.open(dir.path()).unwrap();
    store.mark_prepared(&uid("uid-1")).unwrap();
    assert!(!store.release_unprepared(&uid("uid-1")).unwrap());
    assert_eq!(store.claims().len(), 1);
    let dir = recorded(&ONE.replace("prepared", "preparing"));
    store.open(dir.path()).unwrap();
    assert!(store.release_unprepared(&uid("uid-1")).unwrap());
    assert_eq!(store.claims(), []);
}

#[test]
fn failed_write_changes_nothing() {
    let dir = recorded(ONE);
    let store = store();
    store.open(dir.path()).unwrap();
    // Also root cannot write a file in place of a directory.
    fs::create_dir(dir.path().join(DRAFT_FILE_NAME)).unwrap();
    let error = store.release(&uid("uid-1")).unwrap_err();
    assert!(matches!(error, ClaimStoreError::Write(_)), "{error}");
    assert_eq!(store.claims().len(), 1);
}
