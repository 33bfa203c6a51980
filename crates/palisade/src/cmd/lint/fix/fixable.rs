//! The codes that `--fix` can fix, and how.

use palisade_api::Code as ReadingCode;
use palisade_core::analysis::lint::Code;

/// The part of a policy whose removal fixes a finding of the engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Removal {
    Rule,
    Peer,
}

impl Removal {
    /// Returns the part to remove for a code, if it is fixable.
    pub(super) fn of(code: Code) -> Option<Removal> {
        match code {
            Code::Shadowed | Code::RedundantRule => Some(Removal::Rule),
            Code::NeverMatches => Some(Removal::Peer),
            Code::Tie
            | Code::TieOverlap
            | Code::TieConflict
            | Code::Unreachable
            | Code::SelectsNothing
            | Code::PeerMatchesNothing
            | Code::RedundantPolicy
            | Code::Overridden
            | Code::OverriddenPartly
            | Code::PassNoEffect
            | Code::NoEffect
            | Code::RuleNameDup
            | Code::PortUnexposed
            | Code::NamedPortAddresses
            | Code::DomainUnlearned
            | Code::TenantUnlabelled
            | Code::MixedGeneration
            | Code::LabelTypo
            | Code::V6Open
            | Code::SnatIpBlock
            | Code::NodeLocalDns
            | Code::NoDns
            | Code::DefaultIsolation
            | Code::PeerOr
            | Code::LockoutDns
            | Code::LockoutApiServer
            | Code::LockoutControlPlane
            | Code::LockoutKubelet => None,
        }
    }
}

/// A rewrite that fixes a finding of reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rewrite {
    /// Clears the host bits of a block of addresses.
    MaskedBlock,
    /// Writes a relation in the case of the API.
    RelationCase,
    /// Replaces a range of one port by the port.
    SinglePort,
    /// Removes the field, which has no effect.
    WithoutEntry,
}

impl Rewrite {
    /// Returns the rewrite for a code, if it is fixable.
    pub(super) fn of(code: ReadingCode) -> Option<Rewrite> {
        match code {
            ReadingCode::CidrHostbits => Some(Rewrite::MaskedBlock),
            ReadingCode::RelatedCase => Some(Rewrite::RelationCase),
            ReadingCode::PortRangeSingle => Some(Rewrite::SinglePort),
            ReadingCode::IgnoredRules => Some(Rewrite::WithoutEntry),
            ReadingCode::YamlSyntax
            | ReadingCode::JsonSyntax
            | ReadingCode::NotUtf8
            | ReadingCode::ControlCharacter
            | ReadingCode::TabIndent
            | ReadingCode::HelmTemplate
            | ReadingCode::DuplicateKey
            | ReadingCode::AliasUndefined
            | ReadingCode::AliasCycle
            | ReadingCode::AliasBudget
            | ReadingCode::MergeKey
            | ReadingCode::NestingDepth
            | ReadingCode::FlowTooLarge
            | ReadingCode::FileTooLarge
            | ReadingCode::BrokenGzip
            | ReadingCode::YamlTag
            | ReadingCode::YamlKey
            | ReadingCode::NotAnObject
            | ReadingCode::NoType
            | ReadingCode::ApiVersionMissing
            | ReadingCode::KindMissing
            | ReadingCode::UnknownVersion
            | ReadingCode::UnknownKind
            | ReadingCode::DuplicateObject
            | ReadingCode::UnknownField
            | ReadingCode::WrongType
            | ReadingCode::Required
            | ReadingCode::OneOf
            | ReadingCode::TooMany
            | ReadingCode::TooFew
            | ReadingCode::TooLong
            | ReadingCode::OutOfRange
            | ReadingCode::UnknownValue
            | ReadingCode::DuplicateItem
            | ReadingCode::NameMissing
            | ReadingCode::NameInvalid
            | ReadingCode::BanpName
            | ReadingCode::NamespaceScope
            | ReadingCode::LabelInvalid
            | ReadingCode::NullLabel
            | ReadingCode::InvalidSubject
            | ReadingCode::SelectorValues
            | ReadingCode::CidrInvalid
            | ReadingCode::CidrExcept
            | ReadingCode::CidrLeadingZeros
            | ReadingCode::PortName
            | ReadingCode::PortNameOdd
            | ReadingCode::PortNameCrowded
            | ReadingCode::PortRange
            | ReadingCode::DialectMixed
            | ReadingCode::AnpPrunedWide
            | ReadingCode::DomainInvalid
            | ReadingCode::DomainOdd
            | ReadingCode::DomainAction
            | ReadingCode::Channel
            | ReadingCode::BareSelector
            | ReadingCode::IsolationAnnotation
            | ReadingCode::IpInvalid
            | ReadingCode::PortEmptyTcp
            | ReadingCode::PodSelectorEverywhere
            | ReadingCode::NamespaceUnknown
            | ReadingCode::IpConflict
            | ReadingCode::OverBudget
            | ReadingCode::MoreProblems => None,
        }
    }
}
