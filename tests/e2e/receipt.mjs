// Verifies a receipt with sigstore's packages, by its key and without a transparency log: RECEIPT PUBLIC_KEY. Prints its predicate type.
import crypto from 'node:crypto';
import fs from 'node:fs';
import { bundleFromJSON } from '@sigstore/bundle';
import { toSignedEntity, Verifier } from '@sigstore/verify';

const [receipt, publicKey] = process.argv.slice(2).map((file) => fs.readFileSync(file, 'utf8'));
const dsseEnvelope = JSON.parse(receipt);
const x = Buffer.from(publicKey.split(' ')[1], 'base64').subarray(-32).toString('base64url');
const key = crypto.createPublicKey({ key: { kty: 'OKP', crv: 'Ed25519', x }, format: 'jwk' });
const bundle = bundleFromJSON({
  mediaType: 'application/vnd.dev.sigstore.bundle.v0.3+json',
  verificationMaterial: { publicKey: { hint: dsseEnvelope.signatures[0].keyid }, tlogEntries: [] },
  dsseEnvelope,
});
const nobody = { certificateAuthorities: [], timestampAuthorities: [], tlogs: [], ctlogs: [] };
const trusted = { ...nobody, publicKey: () => ({ publicKey: key, validFor: () => true }) };
const verifier = new Verifier(trusted, { tlogThreshold: 0, ctlogThreshold: 0, timestampThreshold: 0 });
verifier.verify(toSignedEntity(bundle));
console.log(JSON.parse(bundle.content.dsseEnvelope.payload).predicateType);
