//! Permissions: one table, and the function that reads it. Pure.
//!
//! Objects that a caller may not see return 404: [`AccessDecision::Hide`] looks like a missing object. An
//! operation on a visible object that is not permitted returns 403. A missing role or scope is reported
//! *before* any object is looked up, so that an error reveals nothing about objects either.

use crate::principal::{TokenScope, TokenScopes, UserRole};

/// The operation of a route. Every route declares one; undeclared routes are rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AuthOperation {
    /// Get the caller's identity and the server version. Also the first check of calls that check further
    /// permissions themselves.
    Identify,
    /// List workflows, workers, events and groups; lists contain what the caller may see.
    ListVisible,
    CreateWorkflow,
    /// Create a workflow for another owner.
    CreateForOthers,
    ReadWorkflow,
    /// Change jobs, files, data and settings; start, reset and archive.
    ChangeWorkflow,
    /// Decide about failures of a workflow as an agent: within the workflow's triage policy, never in place of
    /// a person.
    DecideAsAgent,
    CancelWorkflow,
    DeleteWorkflow,
    /// Change which groups share it.
    ShareWorkflow,
    /// See secret values in environments.
    ReadSecrets,
    /// Claim, start and complete jobs of a workflow.
    RunJobs,
    /// Add jobs from a running job.
    SpawnJobs,
    /// Write the user data of a workflow.
    ChangeUserData,
    /// Register a worker.
    RegisterWorker,
    ReadWorker,
    /// Act as a registered worker, which also requires its secret.
    ActAsWorker,
    /// Drain or retire a worker.
    ManageWorker,
    /// Quarantine and release nodes, which affects all users with workers there.
    ManageNodes,
    /// Submit a request, or add its input to the catalog.
    CreateRequest,
    /// Read the commands of a request, its failures with job output, and the location of its logs. Existence
    /// and progress of a request are visible to all.
    ReadRequestDetails,
    /// Change priority and production steps; stop and release.
    ChangeRequest,
    /// End a request permanently.
    CancelRequest,
    /// Drain, enable and ban sites, change the number of active requests, remove datasets: affects all users.
    ManageSites,
    ReadGroup,
    CreateGroup,
    /// Change the members of a group.
    ChangeGroup,
    DeleteGroup,
    ReadTokens,
    /// Create and revoke tokens.
    ChangeTokens,
    /// Read metrics of the whole server.
    Metrics,
    /// Reload the configuration; read the audit trail and usage statistics.
    Administer,
    /// Run SQL statements: never permitted.
    Sql,
}

impl AuthOperation {
    /// All operations.
    #[rustfmt::skip] // With one operation per line it would be longer than the table.
    pub const ALL: [Self; 33] = [
        Self::Identify, Self::ListVisible, Self::CreateWorkflow, Self::CreateForOthers, Self::ReadWorkflow,
        Self::ChangeWorkflow, Self::DecideAsAgent, Self::CancelWorkflow, Self::DeleteWorkflow,
        Self::ShareWorkflow, Self::ReadSecrets, Self::RunJobs, Self::SpawnJobs, Self::ChangeUserData,
        Self::RegisterWorker, Self::ReadWorker, Self::ActAsWorker, Self::ManageWorker,
        Self::ManageNodes, Self::ReadRequestDetails, Self::CreateRequest, Self::ChangeRequest,
        Self::CancelRequest, Self::ManageSites, Self::ReadGroup, Self::CreateGroup, Self::ChangeGroup,
        Self::DeleteGroup, Self::ReadTokens, Self::ChangeTokens, Self::Metrics, Self::Administer, Self::Sql,
    ];
}

/// Relation of the caller to an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ObjectRelation {
    /// The caller's own workflow, worker or token, or a group that the caller manages. Also used if no object
    /// is concerned.
    Own,
    /// A workflow shared with a group of the caller, or a group of which the caller is a member.
    Shared,
    Other,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AccessDecision {
    Allow,
    /// 403: the credential lacks the scope.
    ForbidScope,
    /// 403: the role is not sufficient for this relation to the object.
    ForbidRole,
    /// 404: the object is hidden from the caller.
    Hide,
}

/// Requirements of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AccessRule {
    /// One of these scopes is required.
    pub scopes: TokenScopes,
    /// Minimum role for the caller's own objects.
    pub own: MinimumRole,
    /// Minimum role for shared objects; they are visible to lower roles, too.
    pub shared: MinimumRole,
    /// Minimum role for objects of others. They are hidden from roles below operator.
    pub other: MinimumRole,
}

/// The minimum role.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MinimumRole {
    AtLeast(UserRole),
    Never,
}

impl MinimumRole {
    fn admits(self, role: UserRole) -> bool {
        matches!(self, Self::AtLeast(least) if role >= least)
    }
}

/// Returns the rule of an operation: this is the permission table.
pub const fn access_rule(operation: AuthOperation) -> AccessRule {
    use AuthOperation as O;
    const VIEWER: MinimumRole = MinimumRole::AtLeast(UserRole::Viewer);
    const USER: MinimumRole = MinimumRole::AtLeast(UserRole::User);
    const OPERATOR: MinimumRole = MinimumRole::AtLeast(UserRole::Operator);
    const ADMIN: MinimumRole = MinimumRole::AtLeast(UserRole::Admin);
    const NEVER: MinimumRole = MinimumRole::Never;
    const READ: TokenScopes = TokenScopes::READ;
    const CREATE: TokenScopes = TokenScopes::NONE.with(TokenScope::Create);
    const MODIFY: TokenScopes = TokenScopes::NONE.with(TokenScope::Modify);
    const CANCEL: TokenScopes = TokenScopes::NONE.with(TokenScope::Cancel);
    const DECIDE: TokenScopes = TokenScopes::NONE.with(TokenScope::Decide).with(TokenScope::Modify);
    const WORK: TokenScopes = TokenScopes::NONE.with(TokenScope::Work);
    const ADMINISTER: TokenScopes = TokenScopes::NONE.with(TokenScope::Admin);
    const JOB: TokenScopes = TokenScopes::JOB;
    const IN_ALLOCATION: TokenScopes = TokenScopes::ALLOCATION;
    const READ_BOUND: TokenScopes = READ.union(JOB).union(IN_ALLOCATION);

    #[rustfmt::skip] // Aligned columns are easier to read than wrapped lines.
    let (scopes, own, shared, other) = match operation {
        //                                         scope                own       shared    other
        O::Identify                             => (READ_BOUND,         VIEWER,   VIEWER,   VIEWER),
        O::ListVisible | O::Metrics                    => (READ,               VIEWER,   VIEWER,   VIEWER),
        O::ReadWorkflow                         => (READ_BOUND,         VIEWER,   VIEWER,   OPERATOR),
        O::ReadWorker | O::ReadGroup            => (READ,               VIEWER,   VIEWER,   OPERATOR),
        O::CreateWorkflow                       => (CREATE,             USER,     USER,     USER),
        O::CreateForOthers                      => (CREATE,             OPERATOR, OPERATOR, OPERATOR),
        O::ChangeWorkflow                       => (MODIFY,             USER,     USER,     OPERATOR),
        O::DecideAsAgent                        => (DECIDE,             USER,     USER,     OPERATOR),
        O::CancelWorkflow                       => (CANCEL,             USER,     USER,     OPERATOR),
        O::DeleteWorkflow | O::ShareWorkflow | O::ManageWorker | O::ChangeRequest
                                                => (MODIFY,             USER,     OPERATOR, OPERATOR),
        O::ManageNodes | O::ManageSites         => (MODIFY,             OPERATOR, OPERATOR, OPERATOR),
        O::ReadRequestDetails                   => (READ,               VIEWER,   OPERATOR, OPERATOR),
        O::CreateRequest                        => (CREATE,             USER,     OPERATOR, OPERATOR),
        O::CancelRequest                        => (CANCEL,             USER,     OPERATOR, OPERATOR),
        O::ReadSecrets                          => (MODIFY,             USER,     NEVER,    NEVER),
        O::RunJobs                                 => (WORK.union(MODIFY),   USER,     USER,     OPERATOR),
        O::SpawnJobs | O::ChangeUserData        => (WORK.union(MODIFY).union(JOB),
                                                                        USER,     USER,     OPERATOR),
        O::RegisterWorker                      => (WORK.union(IN_ALLOCATION),
                                                                        USER,     USER,     USER),
        O::ActAsWorker                        => (WORK.union(IN_ALLOCATION),
                                                                        USER,     OPERATOR, OPERATOR),
        O::CreateGroup | O::DeleteGroup | O::Administer
                                                => (ADMINISTER,         ADMIN,    ADMIN,    ADMIN),
        O::ChangeGroup                          => (MODIFY,             USER,     ADMIN,    ADMIN),
        O::ReadTokens                           => (READ,               VIEWER,   ADMIN,    ADMIN),
        O::ChangeTokens                         => (MODIFY,             VIEWER,   ADMIN,    ADMIN),
        O::Sql                                  => (ADMINISTER,         NEVER,    NEVER,    NEVER),
    };
    AccessRule { scopes, own, shared, other }
}

/// Decides whether a caller with this role and these scopes may perform the operation on an object with this
/// relation.
pub fn decide_access(
    operation: AuthOperation,
    role: UserRole,
    scopes: TokenScopes,
    relation: ObjectRelation,
) -> AccessDecision {
    let rule = access_rule(operation);
    // Check first what no other token of the user could change.
    if !rule.own.admits(role) {
        return AccessDecision::ForbidRole;
    }
    if !scopes.intersects(rule.scopes) {
        return AccessDecision::ForbidScope;
    }
    let (least, seen) = match relation {
        ObjectRelation::Own => (rule.own, true),
        ObjectRelation::Shared => (rule.shared, true),
        ObjectRelation::Other => (rule.other, role >= UserRole::Operator),
    };
    match (least.admits(role), seen) {
        (true, _) => AccessDecision::Allow,
        (false, true) => AccessDecision::ForbidRole,
        (false, false) => AccessDecision::Hide,
    }
}

/// Returns what the caller needs for the operation; `None`: nothing helps.
pub fn suggest_remedy(
    operation: AuthOperation,
    access_decision: AccessDecision,
    relation: ObjectRelation,
) -> Option<String> {
    let rule = access_rule(operation);
    let least = match relation {
        ObjectRelation::Own => rule.own,
        ObjectRelation::Shared => rule.shared,
        ObjectRelation::Other => rule.other,
    };
    match (access_decision, least) {
        (AccessDecision::ForbidScope, _) => {
            let scope = rule.scopes.smallest_name();
            Some(format!(
                "requires a token with the scope `{scope}`: `windlass auth token create --scope {scope}`"
            ))
        }
        (AccessDecision::ForbidRole, MinimumRole::AtLeast(role)) => Some(format!("requires the role {role}")),
        (AccessDecision::ForbidRole, MinimumRole::Never)
        | (AccessDecision::Allow | AccessDecision::Hide, _) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use AuthOperation as O;

    fn access_by_role(operation: AuthOperation, relation: ObjectRelation) -> [AccessDecision; 4] {
        UserRole::ALL.map(|role| decide_access(operation, role, TokenScopes::ALL, relation))
    }

    const A: AccessDecision = AccessDecision::Allow;
    const F: AccessDecision = AccessDecision::ForbidRole;
    const H: AccessDecision = AccessDecision::Hide;

    /// Expected decisions written by hand, not read from the table.
    #[test]
    fn access_decisions_match_the_table() {
        //                             viewer user operator admin
        let truths = [
            (O::ReadWorkflow, ObjectRelation::Own, [A, A, A, A]),
            (O::ReadWorkflow, ObjectRelation::Shared, [A, A, A, A]),
            (O::ReadWorkflow, ObjectRelation::Other, [H, H, A, A]),
            (O::ChangeWorkflow, ObjectRelation::Own, [F, A, A, A]),
            (O::ChangeWorkflow, ObjectRelation::Shared, [F, A, A, A]),
            (O::ChangeWorkflow, ObjectRelation::Other, [F, H, A, A]),
            (O::DeleteWorkflow, ObjectRelation::Shared, [F, F, A, A]),
            (O::DeleteWorkflow, ObjectRelation::Other, [F, H, A, A]),
            (O::ReadSecrets, ObjectRelation::Own, [F, A, A, A]),
            (O::ReadSecrets, ObjectRelation::Shared, [F, F, F, F]),
            (O::ReadSecrets, ObjectRelation::Other, [F, H, F, F]),
            (O::ActAsWorker, ObjectRelation::Other, [F, H, A, A]),
            (O::SpawnJobs, ObjectRelation::Other, [F, H, A, A]),
            (O::ManageNodes, ObjectRelation::Own, [F, F, A, A]),
            (O::ManageSites, ObjectRelation::Own, [F, F, A, A]),
            (O::ReadRequestDetails, ObjectRelation::Own, [A, A, A, A]),
            (O::ReadRequestDetails, ObjectRelation::Shared, [F, F, A, A]),
            (O::CreateRequest, ObjectRelation::Own, [F, A, A, A]),
            (O::CreateRequest, ObjectRelation::Shared, [F, F, A, A]),
            (O::ChangeRequest, ObjectRelation::Own, [F, A, A, A]),
            (O::ChangeRequest, ObjectRelation::Shared, [F, F, A, A]),
            (O::CancelRequest, ObjectRelation::Shared, [F, F, A, A]),
            (O::Administer, ObjectRelation::Own, [F, F, F, A]),
            (O::ReadTokens, ObjectRelation::Other, [H, H, F, A]),
            (O::Sql, ObjectRelation::Own, [F, F, F, F]),
        ];
        for (operation, relation, expected) in truths {
            assert_eq!(access_by_role(operation, relation), expected, "{operation:?} {relation:?}");
        }
    }

    #[test]
    fn credential_is_limited_to_its_scopes() {
        let may = |operation, scopes| decide_access(operation, UserRole::Admin, scopes, ObjectRelation::Own);
        assert_eq!(may(O::ReadWorkflow, TokenScopes::READ), A);
        assert_eq!(may(O::ChangeWorkflow, TokenScopes::READ), AccessDecision::ForbidScope);
        assert_eq!(may(O::Administer, TokenScopes::WRITE), AccessDecision::ForbidScope);
        assert_eq!(may(O::RegisterWorker, TokenScopes::WRITE), AccessDecision::ForbidScope);
        assert_eq!(may(O::RegisterWorker, TokenScopes::WORKER), A);
        assert_eq!(may(O::RunJobs, TokenScopes::WORKER), A);
        assert_eq!(may(O::ChangeWorkflow, TokenScopes::WORKER), AccessDecision::ForbidScope);
        assert_eq!(may(O::CancelWorkflow, TokenScopes::READ.with(TokenScope::Cancel)), A);
        assert_eq!(may(O::ReadWorkflow, TokenScopes::NONE), AccessDecision::ForbidScope);
    }

    #[test]
    fn bound_tokens_allow_listed_operations_only() {
        let allowed = |scopes| {
            let mut all = AuthOperation::ALL.to_vec();
            all.retain(|operation| {
                decide_access(*operation, UserRole::Admin, scopes, ObjectRelation::Own) == A
            });
            all
        };
        assert_eq!(
            allowed(TokenScopes::JOB),
            [O::Identify, O::ReadWorkflow, O::SpawnJobs, O::ChangeUserData],
            "a job"
        );
        assert_eq!(
            allowed(TokenScopes::ALLOCATION),
            [O::Identify, O::ReadWorkflow, O::RegisterWorker, O::ActAsWorker],
            "the workers of an allocation"
        );
    }

    #[test]
    fn agent_token_only_reads_and_decides() {
        let may =
            |operation| decide_access(operation, UserRole::Admin, TokenScopes::AGENT, ObjectRelation::Own);
        assert_eq!([O::ListVisible, O::ReadWorkflow, O::DecideAsAgent].map(may), [A; 3]);
        for operation in [
            O::ChangeWorkflow,
            O::CreateWorkflow,
            O::CancelWorkflow,
            O::DeleteWorkflow,
            O::ShareWorkflow,
            O::ReadSecrets,
            O::RunJobs,
            O::RegisterWorker,
            O::ActAsWorker,
            O::ManageWorker,
            O::ManageNodes,
            O::ManageSites,
            O::CreateRequest,
            O::ChangeRequest,
            O::CancelRequest,
            O::ChangeGroup,
            O::ChangeTokens,
            O::Administer,
        ] {
            assert_eq!(may(operation), AccessDecision::ForbidScope, "{operation:?}");
        }
        assert_eq!(
            decide_access(O::DecideAsAgent, UserRole::User, TokenScopes::WRITE, ObjectRelation::Own),
            A
        );
        assert_eq!(
            decide_access(O::DecideAsAgent, UserRole::User, TokenScopes::READ, ObjectRelation::Own),
            AccessDecision::ForbidScope
        );
        assert_eq!(
            decide_access(O::DecideAsAgent, UserRole::User, TokenScopes::AGENT, ObjectRelation::Other),
            H
        );
    }

    #[test]
    fn denial_suggests_a_remedy() {
        let remedy = |operation, role, scopes, relation| {
            suggest_remedy(operation, decide_access(operation, role, scopes, relation), relation)
                .unwrap_or_default()
        };
        let told_user = |operation, scopes| remedy(operation, UserRole::User, scopes, ObjectRelation::Own);
        assert!(told_user(O::ChangeWorkflow, TokenScopes::READ).contains("--scope write"));
        assert!(told_user(O::RegisterWorker, TokenScopes::WRITE).contains("--scope worker"));
        assert_eq!(
            told_user(O::CreateGroup, TokenScopes::WRITE),
            "requires the role admin",
            "no scope would help"
        );
        assert_eq!(
            remedy(O::DeleteWorkflow, UserRole::User, TokenScopes::ALL, ObjectRelation::Shared),
            "requires the role operator"
        );
        assert_eq!(remedy(O::ReadSecrets, UserRole::Admin, TokenScopes::ALL, ObjectRelation::Shared), "");
    }

    #[test]
    fn missing_scope_reveals_nothing_about_the_object() {
        for relation in [ObjectRelation::Own, ObjectRelation::Shared, ObjectRelation::Other] {
            let access_decision =
                decide_access(O::ChangeWorkflow, UserRole::User, TokenScopes::READ, relation);
            assert_eq!(access_decision, AccessDecision::ForbidScope);
        }
    }
}
