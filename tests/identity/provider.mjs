// An OpenID provider whose people log in and consent without a browser. tests/support/identity.py
// starts it: the first line of standard input is its configuration, each further line a command,
// and each line of standard output the answer to one. It ends when standard input does.

import { generateKeyPairSync } from 'node:crypto';
import { createServer } from 'node:http';
import { createInterface } from 'node:readline';

import { Provider } from 'oidc-provider';

const CODE_FLOW = { grant_types: ['authorization_code', 'refresh_token'], response_types: ['code'] };
const MACHINE = { grant_types: ['client_credentials'], response_types: [], redirect_uris: [] };

// What the library has to say goes beside the answers, not between them.
console.info = console.warn = console.log = console.error;

const lines = createInterface({ input: process.stdin })[Symbol.asyncIterator]();
const config = JSON.parse((await lines.next()).value);
const own = new Map(config.clients.map((client) => [client.id, client]));

// Keys: the first one of an algorithm signs, all are published.

let keys = [];
let generation = 0;

function addKeys() {
  generation += 1;
  const rsa = generateKeyPairSync('rsa', { modulusLength: 2048 });
  const ec = generateKeyPairSync('ec', { namedCurve: 'P-256' });
  const made = [['RS256', rsa], ['ES256', ec]].map(([alg, pair]) => ({
    ...pair.privateKey.export({ format: 'jwk' }), alg, use: 'sig', kid: `${alg}-${generation}`,
  }));
  keys = [...made, ...keys];
}

// What it remembers outlives a rotation, for which a new provider is made.

const memory = new Map();

class Memory {
  constructor(model) { this.model = model; }

  key(id) { return `${this.model}:${id}`; }

  #first(test) {
    const entries = [...memory].filter(([key]) => key.startsWith(`${this.model}:`));
    return entries.map(([, payload]) => payload).find(test);
  }

  async upsert(id, payload) { memory.set(this.key(id), payload); }

  async find(id) { return memory.get(this.key(id)); }

  async findByUid(uid) { return this.#first((payload) => payload.uid === uid); }

  async findByUserCode(code) { return this.#first((payload) => payload.userCode === code); }

  async consume(id) { memory.get(this.key(id)).consumed = Math.floor(Date.now() / 1000); }

  async destroy(id) { memory.delete(this.key(id)); }

  async revokeByGrantId(grantId) {
    for (const [key, payload] of memory) if (payload.grantId === grantId) memory.delete(key);
  }
}

function makeProvider(issuer) {
  return new Provider(issuer, {
    adapter: Memory,
    jwks: { keys },
    clients: config.clients.map(({ id, secret, redirect_uris }) => ({
      client_id: id,
      ...(redirect_uris ? { redirect_uris, application_type: 'native' } : {}),
      ...(redirect_uris ? CODE_FLOW : MACHINE),
      ...(secret
        ? { client_secret: secret, token_endpoint_auth_method: 'client_secret_basic' }
        : { token_endpoint_auth_method: 'none' }),
    })),
    scopes: ['openid', 'offline_access', ...config.scopes],
    responseTypes: ['code'],
    cookies: { keys: ['a key of the tests'] },
    findAccount: (_, id) => (config.accounts[id]
      ? { accountId: id, claims: async () => ({ sub: id }) }
      : undefined),
    extraTokenClaims: (_, token) => (token.accountId
      ? config.accounts[token.accountId]
      : own.get(token.clientId)?.claims),
    // A client that registers says with which scopes it begins, and later asks for more. The
    // server may replace what it is asked for (RFC 7591, section 3.2.1).
    extraClientMetadata: {
      properties: ['any_scope'],
      validator: (ctx, key, value, metadata) => { metadata.scope = undefined; },
    },
    features: {
      clientCredentials: { enabled: true },
      devInteractions: { enabled: false },
      introspection: { enabled: true, allowedPolicy: () => true },
      registration: { enabled: true },
      revocation: { enabled: true },
      resourceIndicators: {
        enabled: true,
        useGrantedResource: () => true,
        getResourceServerInfo: (_, resource, client) => {
          const { format = 'jwt', algorithm = 'RS256' } = own.get(client.clientId) ?? {};
          return {
            scope: config.scopes.join(' '),
            audience: resource,
            accessTokenFormat: format,
            accessTokenTTL: 600,
            ...(format === 'jwt' ? { jwt: { sign: { alg: algorithm } } } : {}),
          };
        },
      },
    },
    ttl: { ClientCredentials: 600, Grant: 600, IdToken: 600, Interaction: 600, Session: 600 },
    renderError: (ctx, out) => { ctx.type = 'json'; ctx.body = out; },
  });
}

// Who comes to log in is the person that `login_hint` names, and grants all that is asked for.
async function interact(provider, request, response) {
  const { prompt, params, session, grantId } = await provider.interactionDetails(request, response);
  if (prompt.name === 'login') {
    const login = { accountId: params.login_hint ?? config.default_account };
    return provider.interactionFinished(request, response, { login });
  }
  const grant = (grantId && await provider.Grant.find(grantId))
    || new provider.Grant({ accountId: session.accountId, clientId: params.client_id });
  const { missingOIDCScope, missingOIDCClaims, missingResourceScopes } = prompt.details;
  if (missingOIDCScope) grant.addOIDCScope(missingOIDCScope.join(' '));
  if (missingOIDCClaims) grant.addOIDCClaims(missingOIDCClaims);
  for (const [resource, scopes] of Object.entries(missingResourceScopes ?? {})) {
    grant.addResourceScope(resource, scopes.join(' '));
  }
  const consent = { grantId: await grant.save() };
  const how = { mergeWithLastSubmission: true };
  return provider.interactionFinished(request, response, { consent }, how);
}

let provider;
let handle;

const server = createServer((request, response) => {
  if (!request.url.startsWith('/interaction/')) {
    handle(request, response);
    return;
  }
  interact(provider, request, response).catch((error) => {
    console.error(error);
    response.writeHead(500).end(String(error));
  });
});

function answer(value) {
  process.stdout.write(`${JSON.stringify(value)}\n`);
}

function renew() {
  provider = makeProvider(`http://127.0.0.1:${server.address().port}`);
  handle = provider.callback();
}

addKeys();
await new Promise((resolve) => { server.listen(0, '127.0.0.1', resolve); });
renew();
answer({ issuer: provider.issuer });

for await (const line of lines) {
  const { rotate } = JSON.parse(line);
  if (rotate === 'replace') keys = [];
  addKeys();
  renew();
  answer({ kids: keys.map((key) => key.kid) });
}
process.exit(0);
