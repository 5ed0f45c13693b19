//! Permissions: groups and their members, shared workflows, tokens.

use crate::kit::{NOW, create};
use windlass_store::model::{NewTokenRow, WorkflowFilter};
use windlass_store::{Store, StoreError};
use windlass_types::{Timestamp, WorkflowId};

const LATER: Timestamp = Timestamp(NOW.0 + 1_000_000);

pub(crate) fn groups_have_members_with_roles(store: &dyn Store) {
    let ops = store.add_group("ops", Some("keep it running"), NOW).unwrap();
    let lab = store.add_group("lab", None, NOW).unwrap();
    let error = store.add_group("ops", None, NOW).unwrap_err();
    assert!(matches!(&error, StoreError::NameTaken { name, .. } if name == "ops"), "{error}");
    let row = store.group(ops).unwrap().unwrap();
    assert_eq!((row.name.as_str(), row.description.as_deref()), ("ops", Some("keep it running")));
    assert_eq!(store.groups().unwrap().len(), 2);

    let first = store.add_member(ops, "ada", "member", NOW).unwrap();
    let again = store.add_member(ops, "ada", "admin", NOW).unwrap();
    assert_eq!((first.role.as_str(), again.role.as_str()), ("member", "admin"));
    store.add_member(lab, "ada", "member", NOW).unwrap();
    store.add_member(ops, "bob", "member", NOW).unwrap();
    let members = store.members(ops).unwrap();
    let told: Vec<_> = members.iter().map(|row| (row.user_name.as_str(), row.role.as_str())).collect();
    assert_eq!(told, [("ada", "admin"), ("bob", "member")]);
    assert_eq!(store.groups_of_user("ada").unwrap().len(), 2);

    store.remove_member(ops, "bob", NOW).unwrap();
    assert_eq!(store.groups_of_user("bob").unwrap(), []);
    let error = store.remove_member(ops, "bob", NOW).unwrap_err();
    assert!(matches!(error, StoreError::NoSuchMember { .. }), "{error}");
    store.delete_group(ops, NOW).unwrap();
    assert_eq!(store.group(ops).unwrap(), None);
    assert_eq!(store.groups_of_user("ada").unwrap().len(), 1, "memberships go with their group");
    assert!(store.add_member(ops, "ada", "member", NOW).is_err());
}

pub(crate) fn shared_workflow_is_visible_to_members(store: &dyn Store) {
    let (workflow, _) = create(store, 1);
    create(store, 1);
    let (lab, ops) = (store.add_group("lab", None, NOW).unwrap(), store.add_group("ops", None, NOW).unwrap());
    store.add_member(lab, "bob", "member", NOW).unwrap();
    let visible = |user: &str| {
        let filter = WorkflowFilter { visible_to: Some(user.into()), ..WorkflowFilter::default() };
        store.list_workflows(&filter).unwrap().iter().map(|row| row.id).collect::<Vec<_>>()
    };
    assert_eq!((visible("ada").len(), visible("bob")), (2, vec![]));

    store.share_workflow(workflow, ops, NOW).unwrap();
    assert!(!store.is_shared_with(workflow, "bob").unwrap());
    store.share_workflow(workflow, lab, NOW).unwrap();
    store.share_workflow(workflow, lab, LATER).unwrap();
    assert!(store.is_shared_with(workflow, "bob").unwrap());
    assert_eq!(visible("bob"), [workflow]);
    assert_eq!(store.groups_sharing(workflow).unwrap().len(), 2);
    let of_group = WorkflowFilter { group: Some(lab), ..WorkflowFilter::default() };
    assert_eq!(store.list_workflows(&of_group).unwrap().len(), 1);

    store.unshare_workflow(workflow, lab, NOW).unwrap();
    assert!(!store.is_shared_with(workflow, "bob").unwrap());
    store.delete_group(ops, NOW).unwrap();
    assert_eq!(store.groups_sharing(workflow).unwrap(), []);
    assert!(store.share_workflow(WorkflowId(workflow.0 + 100), lab, NOW).is_err());
}

pub(crate) fn token_is_valid_until_revoked(store: &dyn Store) {
    let token = |hash: &str, user: &str| NewTokenRow {
        hash: hash.into(),
        name: "ci".into(),
        user: user.into(),
        role: "user".into(),
        scopes: vec!["jobs".into(), "files".into()],
        expires_at: Some(LATER),
    };
    let id = store.add_token(&token("h1", "ada"), NOW).unwrap();
    store.add_token(&token("h2", "bob"), NOW).unwrap();
    assert!(store.add_token(&token("h1", "eve"), NOW).is_err(), "a hash identifies one token");
    let row = store.token_by_hash("h1").unwrap().unwrap();
    assert_eq!((row.id, row.user.as_str(), row.role.as_str()), (id, "ada", "user"));
    assert_eq!((row.scopes.len(), row.created_at, row.expires_at), (2, NOW, Some(LATER)));
    assert_eq!((row.last_used_at, row.revoked_at), (None, None));
    assert!(store.token_by_hash("h3").unwrap().is_none());

    store.record_token_use(id, LATER).unwrap();
    store.revoke_token(id, NOW).unwrap();
    store.revoke_token(id, LATER).unwrap();
    let row = store.token_by_hash("h1").unwrap().unwrap();
    assert_eq!((row.last_used_at, row.revoked_at), (Some(LATER), Some(NOW)), "revoking is idempotent");
    assert_eq!(store.tokens(Some("ada")).unwrap(), [row]);
    assert_eq!(store.tokens(None).unwrap().len(), 2);
    assert!(store.revoke_token(id + 100, NOW).is_err());
}
