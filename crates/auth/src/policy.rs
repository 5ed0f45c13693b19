//! What somebody may do: one table, and the function that reads it. Pure.
//!
//! Objects that somebody may not see do not exist for him: [`Verdict::Hide`] is answered like an object that is not
//! there. What he sees and may not do is [`Verdict::Forbid`]. Want of a role or scope is told *before* any object is
//! looked at, so that a refusal tells nothing about objects either.

use crate::principal::{Role, Scope, Scopes};

/// What a route does. Every route declares one; one that does not is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operation {
    /// To know who one is and which server this is. Also the entrance to calls that ask for the rest themselves.
    Identify,
    /// The list of workflows, workers, events and groups, which holds what one may see.
    Look,
    CreateWorkflow,
    /// To make a workflow that belongs to somebody else.
    CreateForOthers,
    ReadWorkflow,
    /// Its jobs, files, data, settings; starting, resetting, archiving it.
    ChangeWorkflow,
    /// To decide about failures of a workflow as an agent: within the workflow's policy, and never in place of a person.
    DecideAsAgent,
    CancelWorkflow,
    DeleteWorkflow,
    /// To say which groups share it.
    ShareWorkflow,
    /// To see the values of secrets in environments.
    ReadSecrets,
    /// To claim, start and complete jobs of a workflow.
    Work,
    /// To add jobs from inside a job.
    SpawnJobs,
    /// To write the user data of a workflow.
    ChangeUserData,
    /// To introduce a worker.
    IntroduceWorker,
    ReadWorker,
    /// To speak as a worker. It quotes its secret besides.
    SpeakAsWorker,
    /// To drain or retire a worker.
    ManageWorker,
    /// To set nodes aside, which concerns everybody who has workers there.
    ManageNodes,
    /// To submit a request, or to add to the catalog what it reads.
    CreateRequest,
    /// To read the commands of a request, its failures with what jobs printed, and where its logs are. That a request is
    /// there and how far it is may be read by all.
    ReadRequestDetails,
    /// Its priority, its steps; stopping and releasing it.
    ChangeRequest,
    /// To end a request for good.
    CancelRequest,
    /// To drain, enable or ban sites, to say how many requests run at once, to forget datasets: it concerns everybody.
    ManageSites,
    ReadGroup,
    CreateGroup,
    /// To say who is in a group.
    ChangeGroup,
    DeleteGroup,
    ReadTokens,
    /// To make and revoke tokens.
    ChangeTokens,
    /// Figures about the server as a whole.
    Metrics,
    /// Reloading, the audit trail, statistics of use.
    Administer,
    /// Statements of one's own on the database: offered to nobody.
    Sql,
}

impl Operation {
    /// All that there are.
    #[rustfmt::skip] // One line each would be longer than the table.
    pub const ALL: [Self; 33] = [
        Self::Identify, Self::Look, Self::CreateWorkflow, Self::CreateForOthers, Self::ReadWorkflow,
        Self::ChangeWorkflow, Self::DecideAsAgent, Self::CancelWorkflow, Self::DeleteWorkflow,
        Self::ShareWorkflow, Self::ReadSecrets, Self::Work, Self::SpawnJobs, Self::ChangeUserData,
        Self::IntroduceWorker, Self::ReadWorker, Self::SpeakAsWorker, Self::ManageWorker,
        Self::ManageNodes, Self::ReadRequestDetails, Self::CreateRequest, Self::ChangeRequest,
        Self::CancelRequest, Self::ManageSites, Self::ReadGroup, Self::CreateGroup, Self::ChangeGroup,
        Self::DeleteGroup, Self::ReadTokens, Self::ChangeTokens, Self::Metrics, Self::Administer, Self::Sql,
    ];
}

/// What an object is to somebody.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Relation {
    /// His workflow, his worker, his token; a group that he manages. Also where no object is concerned.
    Own,
    /// A workflow of a group that he is in; a group that he is in.
    Shared,
    Other,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Verdict {
    Allow,
    /// 403: the credential is good for less than this.
    ForbidScope,
    /// 403: his role, or what the object is to him, is not enough.
    ForbidRole,
    /// 404: for him there is no such object.
    Hide,
}

/// Who may do something to whose objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rule {
    /// One of these is needed.
    pub scopes: Scopes,
    /// With objects of one's own.
    pub own: Least,
    /// With objects that are shared with him; who may not still sees them.
    pub shared: Least,
    /// With objects of others. Below operator they are not seen at all.
    pub other: Least,
}

/// The least role that may.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Least {
    Is(Role),
    Nobody,
}

impl Least {
    fn admits(self, role: Role) -> bool {
        matches!(self, Self::Is(least) if role >= least)
    }
}

/// The rule of an operation: this is the table.
pub const fn rule(operation: Operation) -> Rule {
    use Operation as O;
    const VIEWER: Least = Least::Is(Role::Viewer);
    const USER: Least = Least::Is(Role::User);
    const OPERATOR: Least = Least::Is(Role::Operator);
    const ADMIN: Least = Least::Is(Role::Admin);
    const NOBODY: Least = Least::Nobody;
    const READ: Scopes = Scopes::READ;
    const CREATE: Scopes = Scopes::NONE.with(Scope::Create);
    const MODIFY: Scopes = Scopes::NONE.with(Scope::Modify);
    const CANCEL: Scopes = Scopes::NONE.with(Scope::Cancel);
    const DECIDE: Scopes = Scopes::NONE.with(Scope::Decide).with(Scope::Modify);
    const WORK: Scopes = Scopes::NONE.with(Scope::Work);
    const ADMINISTER: Scopes = Scopes::NONE.with(Scope::Admin);
    const JOB: Scopes = Scopes::JOB;
    const IN_ALLOCATION: Scopes = Scopes::ALLOCATION;
    const READ_BOUND: Scopes = READ.and(JOB).and(IN_ALLOCATION);

    #[rustfmt::skip] // Columns are read more easily than lines that were broken to fit.
    let (scopes, own, shared, other) = match operation {
        //                                         scope                own       shared    other
        O::Identify                             => (READ_BOUND,         VIEWER,   VIEWER,   VIEWER),
        O::Look | O::Metrics                    => (READ,               VIEWER,   VIEWER,   VIEWER),
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
        O::ReadSecrets                          => (MODIFY,             USER,     NOBODY,   NOBODY),
        O::Work                                 => (WORK.and(MODIFY),   USER,     USER,     OPERATOR),
        O::SpawnJobs | O::ChangeUserData        => (WORK.and(MODIFY).and(JOB),
                                                                        USER,     USER,     OPERATOR),
        O::IntroduceWorker                      => (WORK.and(IN_ALLOCATION),
                                                                        USER,     USER,     USER),
        O::SpeakAsWorker                        => (WORK.and(IN_ALLOCATION),
                                                                        USER,     OPERATOR, OPERATOR),
        O::CreateGroup | O::DeleteGroup | O::Administer
                                                => (ADMINISTER,         ADMIN,    ADMIN,    ADMIN),
        O::ChangeGroup                          => (MODIFY,             USER,     ADMIN,    ADMIN),
        O::ReadTokens                           => (READ,               VIEWER,   ADMIN,    ADMIN),
        O::ChangeTokens                         => (MODIFY,             VIEWER,   ADMIN,    ADMIN),
        O::Sql                                  => (ADMINISTER,         NOBODY,   NOBODY,   NOBODY),
    };
    Rule { scopes, own, shared, other }
}

/// Whether somebody with this role and these scopes may do this to an object that is this to him.
pub fn judge(operation: Operation, role: Role, scopes: Scopes, relation: Relation) -> Verdict {
    let rule = rule(operation);
    // First what no other token of his would help against.
    if !rule.own.admits(role) {
        return Verdict::ForbidRole;
    }
    if !scopes.meets(rule.scopes) {
        return Verdict::ForbidScope;
    }
    let (least, seen) = match relation {
        Relation::Own => (rule.own, true),
        Relation::Shared => (rule.shared, true),
        Relation::Other => (rule.other, role >= Role::Operator),
    };
    match (least.admits(role), seen) {
        (true, _) => Verdict::Allow,
        (false, true) => Verdict::ForbidRole,
        (false, false) => Verdict::Hide,
    }
}

/// What would help whoever may not do this; `None`: nothing would.
pub fn remedy(operation: Operation, verdict: Verdict, relation: Relation) -> Option<String> {
    let rule = rule(operation);
    let least = match relation {
        Relation::Own => rule.own,
        Relation::Shared => rule.shared,
        Relation::Other => rule.other,
    };
    match (verdict, least) {
        (Verdict::ForbidScope, _) => {
            let scope = rule.scopes.least_word();
            Some(format!(
                "it takes a token with the scope `{scope}`: `windlass token create --scope {scope}`"
            ))
        }
        (Verdict::ForbidRole, Least::Is(role)) => Some(format!("it takes the role {role}")),
        (Verdict::ForbidRole, Least::Nobody) | (Verdict::Allow | Verdict::Hide, _) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Operation as O;

    fn verdicts(operation: Operation, relation: Relation) -> [Verdict; 4] {
        Role::ALL.map(|role| judge(operation, role, Scopes::ALL, relation))
    }

    const A: Verdict = Verdict::Allow;
    const F: Verdict = Verdict::ForbidRole;
    const H: Verdict = Verdict::Hide;

    /// Truths written by hand, not read from the table.
    #[test]
    fn who_may_do_what() {
        //                             viewer user operator admin
        let truths = [
            (O::ReadWorkflow, Relation::Own, [A, A, A, A]),
            (O::ReadWorkflow, Relation::Shared, [A, A, A, A]),
            (O::ReadWorkflow, Relation::Other, [H, H, A, A]),
            (O::ChangeWorkflow, Relation::Own, [F, A, A, A]),
            (O::ChangeWorkflow, Relation::Shared, [F, A, A, A]),
            (O::ChangeWorkflow, Relation::Other, [F, H, A, A]),
            (O::DeleteWorkflow, Relation::Shared, [F, F, A, A]),
            (O::DeleteWorkflow, Relation::Other, [F, H, A, A]),
            (O::ReadSecrets, Relation::Own, [F, A, A, A]),
            (O::ReadSecrets, Relation::Shared, [F, F, F, F]),
            (O::ReadSecrets, Relation::Other, [F, H, F, F]),
            (O::SpeakAsWorker, Relation::Other, [F, H, A, A]),
            (O::SpawnJobs, Relation::Other, [F, H, A, A]),
            (O::ManageNodes, Relation::Own, [F, F, A, A]),
            (O::ManageSites, Relation::Own, [F, F, A, A]),
            (O::ReadRequestDetails, Relation::Own, [A, A, A, A]),
            (O::ReadRequestDetails, Relation::Shared, [F, F, A, A]),
            (O::CreateRequest, Relation::Own, [F, A, A, A]),
            (O::CreateRequest, Relation::Shared, [F, F, A, A]),
            (O::ChangeRequest, Relation::Own, [F, A, A, A]),
            (O::ChangeRequest, Relation::Shared, [F, F, A, A]),
            (O::CancelRequest, Relation::Shared, [F, F, A, A]),
            (O::Administer, Relation::Own, [F, F, F, A]),
            (O::ReadTokens, Relation::Other, [H, H, F, A]),
            (O::Sql, Relation::Own, [F, F, F, F]),
        ];
        for (operation, relation, expected) in truths {
            assert_eq!(verdicts(operation, relation), expected, "{operation:?} {relation:?}");
        }
    }

    #[test]
    fn a_credential_is_good_for_no_more_than_its_scopes() {
        let may = |operation, scopes| judge(operation, Role::Admin, scopes, Relation::Own);
        assert_eq!(may(O::ReadWorkflow, Scopes::READ), A);
        assert_eq!(may(O::ChangeWorkflow, Scopes::READ), Verdict::ForbidScope);
        assert_eq!(may(O::Administer, Scopes::WRITE), Verdict::ForbidScope);
        assert_eq!(may(O::IntroduceWorker, Scopes::WRITE), Verdict::ForbidScope);
        assert_eq!(may(O::IntroduceWorker, Scopes::WORKER), A);
        assert_eq!(may(O::Work, Scopes::WORKER), A);
        assert_eq!(may(O::ChangeWorkflow, Scopes::WORKER), Verdict::ForbidScope);
        assert_eq!(may(O::CancelWorkflow, Scopes::READ.with(Scope::Cancel)), A);
        assert_eq!(may(O::ReadWorkflow, Scopes::NONE), Verdict::ForbidScope);
    }

    #[test]
    fn bound_tokens_allow_what_is_listed_and_nothing_else() {
        let allowed = |scopes| {
            let mut all = Operation::ALL.to_vec();
            all.retain(|operation| judge(*operation, Role::Admin, scopes, Relation::Own) == A);
            all
        };
        assert_eq!(
            allowed(Scopes::JOB),
            [O::Identify, O::ReadWorkflow, O::SpawnJobs, O::ChangeUserData],
            "a job"
        );
        assert_eq!(
            allowed(Scopes::ALLOCATION),
            [O::Identify, O::ReadWorkflow, O::IntroduceWorker, O::SpeakAsWorker],
            "the workers of an allocation"
        );
    }

    #[test]
    fn an_agents_token_reads_and_decides_and_does_nothing_else() {
        let may = |operation| judge(operation, Role::Admin, Scopes::AGENT, Relation::Own);
        assert_eq!([O::Look, O::ReadWorkflow, O::DecideAsAgent].map(may), [A; 3]);
        for operation in [
            O::ChangeWorkflow,
            O::CreateWorkflow,
            O::CancelWorkflow,
            O::DeleteWorkflow,
            O::ShareWorkflow,
            O::ReadSecrets,
            O::Work,
            O::IntroduceWorker,
            O::SpeakAsWorker,
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
            assert_eq!(may(operation), Verdict::ForbidScope, "{operation:?}");
        }
        assert_eq!(judge(O::DecideAsAgent, Role::User, Scopes::WRITE, Relation::Own), A);
        assert_eq!(judge(O::DecideAsAgent, Role::User, Scopes::READ, Relation::Own), Verdict::ForbidScope);
        assert_eq!(judge(O::DecideAsAgent, Role::User, Scopes::AGENT, Relation::Other), H);
    }

    #[test]
    fn what_would_help_is_told() {
        let told = |operation, role, scopes, relation| {
            remedy(operation, judge(operation, role, scopes, relation), relation).unwrap_or_default()
        };
        let told_user = |operation, scopes| told(operation, Role::User, scopes, Relation::Own);
        assert!(told_user(O::ChangeWorkflow, Scopes::READ).contains("--scope write"));
        assert!(told_user(O::IntroduceWorker, Scopes::WRITE).contains("--scope worker"));
        assert_eq!(
            told_user(O::CreateGroup, Scopes::WRITE),
            "it takes the role admin",
            "no scope would help"
        );
        assert_eq!(
            told(O::DeleteWorkflow, Role::User, Scopes::ALL, Relation::Shared),
            "it takes the role operator"
        );
        assert_eq!(told(O::ReadSecrets, Role::Admin, Scopes::ALL, Relation::Shared), "");
    }

    #[test]
    fn a_want_of_scope_says_nothing_about_the_object() {
        for relation in [Relation::Own, Relation::Shared, Relation::Other] {
            let verdict = judge(O::ChangeWorkflow, Role::User, Scopes::READ, relation);
            assert_eq!(verdict, Verdict::ForbidScope);
        }
    }
}
