//! The certificate authority of a testbed: certificates for servers, and for any user with groups.

use std::fs;
use std::net::IpAddr;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose, SanType,
};

use crate::error::{Error, Result, at};

/// The attribute that Kubernetes reads groups from, by number.
const ORGANIZATION: [u64; 4] = [2, 5, 4, 10];

/// The files of a certificate with its key, and of the authority that signed it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Credentials {
    /// The certificate, PEM.
    pub certificate: PathBuf,
    /// The key, PEM.
    pub key: PathBuf,
    /// The certificate of the authority, PEM.
    pub authority: PathBuf,
}

/// Signs certificates, all of which are files of one directory.
#[derive(Debug)]
pub(crate) struct Authority {
    name: &'static str,
    directory: PathBuf,
}

impl Authority {
    /// A new authority, with its key and certificate in a directory.
    pub(crate) fn make(name: &'static str, directory: &Path) -> Result<Authority> {
        let key = KeyPair::generate()?;
        let certificate = authority(name).self_signed(&key)?;
        let made = Authority::open(name, directory);
        write(&made.file("key"), &key.serialize_pem())?;
        write(&made.file("crt"), &certificate.pem())?;
        Ok(made)
    }

    /// The existing authority of a directory.
    pub(crate) fn open(name: &'static str, directory: &Path) -> Authority {
        let directory = directory.to_owned();
        Authority { name, directory }
    }

    fn file(&self, extension: &str) -> PathBuf {
        self.directory.join(format!("{}.{extension}", self.name))
    }

    /// Its own certificate.
    pub(crate) fn certificate(&self) -> PathBuf {
        self.file("crt")
    }

    /// A certificate for a server with these names and addresses, also valid for a client.
    pub(crate) fn server(
        &self,
        file: &str,
        subject: (&str, &[&str]),
        names: &[&str],
        addresses: &[IpAddr],
    ) -> Result<Credentials> {
        let mut parameters = leaf(subject.0, subject.1)?;
        for name in names {
            let name = (*name).try_into()?;
            parameters.subject_alt_names.push(SanType::DnsName(name));
        }
        let addresses = addresses.iter().map(|it| SanType::IpAddress(*it));
        parameters.subject_alt_names.extend(addresses);
        let usage = &mut parameters.extended_key_usages;
        usage.push(ExtendedKeyUsagePurpose::ServerAuth);
        usage.push(ExtendedKeyUsagePurpose::ClientAuth);
        self.sign(file, &parameters)
    }

    /// A certificate for a user in at most two groups.
    pub(crate) fn client(&self, file: &str, user: &str, groups: &[&str]) -> Result<Credentials> {
        let mut parameters = leaf(user, groups)?;
        let usage = &mut parameters.extended_key_usages;
        usage.push(ExtendedKeyUsagePurpose::ClientAuth);
        self.sign(file, &parameters)
    }

    fn sign(&self, file: &str, parameters: &CertificateParams) -> Result<Credentials> {
        let path = self.file("key");
        let key = KeyPair::from_pem(&fs::read_to_string(&path).map_err(at("read", &path))?)?;
        let issuer = Issuer::new(authority(self.name), key);
        let key = KeyPair::generate()?;
        let certificate = parameters.signed_by(&key, &issuer)?;
        let credentials = Credentials {
            certificate: self.directory.join(format!("{file}.crt")),
            key: self.directory.join(format!("{file}.key")),
            authority: self.certificate(),
        };
        write(&credentials.key, &key.serialize_pem())?;
        write(&credentials.certificate, &certificate.pem())?;
        Ok(credentials)
    }
}

/// The key that signs the tokens of service accounts, and the key that verifies them.
pub(crate) fn signing_key(private: &Path, public: &Path) -> Result<()> {
    let key = KeyPair::generate()?;
    write(private, &key.serialize_pem())?;
    write(public, &key.public_key_pem())
}

/// The parameters of an authority; always the same for one name: its issuer can be made again from
/// the key alone.
fn authority(name: &str) -> CertificateParams {
    let mut parameters = CertificateParams::default();
    parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    parameters.key_usages = vec![
        KeyUsagePurpose::KeyCertSign,
        KeyUsagePurpose::DigitalSignature,
    ];
    parameters.distinguished_name = DistinguishedName::new();
    parameters
        .distinguished_name
        .push(DnType::CommonName, format!("palisade testbed {name}"));
    parameters
}

fn leaf(user: &str, groups: &[&str]) -> Result<CertificateParams> {
    let mut parameters = CertificateParams::default();
    let mut name = DistinguishedName::new();
    // A name has one value of each type; the same attribute has a second type by its number.
    let mut types = [
        DnType::OrganizationName,
        DnType::CustomDnType(ORGANIZATION.to_vec()),
    ]
    .into_iter();
    for group in groups {
        let Some(kind) = types.next() else {
            return Err(Error::Refused(format!(
                "a certificate has at most two groups, and `{user}` has {}",
                groups.len()
            )));
        };
        name.push(kind, *group);
    }
    name.push(DnType::CommonName, user);
    parameters.distinguished_name = name;
    parameters.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    Ok(parameters)
}

/// Writes a file that only its owner can read.
pub(crate) fn write(path: &Path, text: &str) -> Result<()> {
    use std::io::Write as _;
    let file = fs::OpenOptions::new()
        .create(true)
        .truncate(true)
        .write(true)
        .mode(0o600)
        .open(path);
    let written = file.and_then(|mut file| file.write_all(text.as_bytes()));
    written.map_err(at("write", path))
}
