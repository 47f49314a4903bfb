"""What has to be one step in Redis, as Lua scripts.

Time is the server's own (``TIME``): the clocks of those who ask may differ. Numbers of
microseconds are exact in Lua, whose numbers are doubles, for the next two centuries, but have to be
written out by ``%.0f``. Of a script that is refused for want of memory nothing is done: each writes
first what needs memory.
"""

import hashlib
from typing import Final, NamedTuple


class Script(NamedTuple):
    """A script and the name under which a server remembers it."""

    text: str
    sha: str


def _script(*parts: str) -> Script:
    text = "\n".join(part.strip("\n") for part in parts)
    return Script(text, hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest())


PROBE: Final = _script("""
if KEYS[1] then
  redis.call('SET', KEYS[1], '', 'PX', 1000)
  redis.call('GETDEL', KEYS[1])
end
return redis.call('TIME') and 1
""")
"""Whether it takes writes and is new enough. Returns 1."""

_LEDGER: Final = """
-- What an owner has: a hash of sizes in bytes by name, their sum under the empty name, and a
-- sorted set of the instants in ms at which entries end.
local function now_ms()
  local t = redis.call('TIME')
  return t[1] * 1000 + math.floor(t[2] / 1000)
end

local function forget_dead(sizes, ends, now)
  local upto = string.format('%.0f', now)
  local dead = redis.call('ZRANGEBYSCORE', ends, '-inf', upto, 'LIMIT', 0, 500)
  if #dead == 0 then return end
  local freed = 0
  for _, name in ipairs(dead) do
    freed = freed + (tonumber(redis.call('HGET', sizes, name)) or 0)
  end
  redis.call('HINCRBY', sizes, '', -freed)
  redis.call('HDEL', sizes, unpack(dead))
  redis.call('ZREM', ends, unpack(dead))
end

-- Whether there is room for an entry of this size in place of what it had.
local function has_room(sizes, ends, name, size, max_count, max_bytes)
  local had = tonumber(redis.call('HGET', sizes, name))
  local count = redis.call('HLEN', sizes)
  if count > 0 then count = count - 1 end
  local sum = tonumber(redis.call('HGET', sizes, '')) or 0
  if had then return sum - had + size <= max_bytes end
  return count < max_count and sum + size <= max_bytes
end

local function enter(sizes, ends, name, size, ends_at)
  local had = tonumber(redis.call('HGET', sizes, name)) or 0
  redis.call('HINCRBY', sizes, '', size - had)
  redis.call('HSET', sizes, name, size)
  redis.call('ZADD', ends, string.format('%.0f', ends_at), name)
  -- As long as its last entry.
  local last = redis.call('ZRANGE', ends, -1, -1, 'WITHSCORES')[2]
  redis.call('PEXPIREAT', sizes, string.format('%.0f', last))
  redis.call('PEXPIREAT', ends, string.format('%.0f', last))
end

local function leave(sizes, ends, name)
  local had = tonumber(redis.call('HGET', sizes, name))
  if not had then return end
  redis.call('HDEL', sizes, name)
  redis.call('ZREM', ends, name)
  if redis.call('ZCARD', ends) == 0 then
    redis.call('DEL', sizes)
  else
    redis.call('HINCRBY', sizes, '', -had)
  end
end
"""

WRITE: Final = _script(
    _LEDGER,
    """
-- KEYS: entry [, sizes, ends]
-- ARGV: how, value, ttl in ms, before [, name, size, most entries, most bytes]
-- Returns 1: written; 0: something else is there; -1: no room; for 'take' what is there
-- and its time in ms.
local how = ARGV[1]
if how ~= 'set' then
  local found = redis.call('GET', KEYS[1])
  if how == 'take' and found then return {found, redis.call('PTTL', KEYS[1])} end
  if how == 'new' and found then return 0 end
  if how == 'replace' and found ~= ARGV[4] then return 0 end
end
if KEYS[2] then
  local now = now_ms()
  forget_dead(KEYS[2], KEYS[3], now)
  if not has_room(KEYS[2], KEYS[3], ARGV[5], ARGV[6], tonumber(ARGV[7]), tonumber(ARGV[8])) then
    return -1
  end
  enter(KEYS[2], KEYS[3], ARGV[5], ARGV[6], now + ARGV[3])
end
redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3])
return 1
""",
)
"""Puts a value in its place, on certain conditions, and into the ledger of its owner."""

RESERVE: Final = _script(
    _LEDGER,
    """
-- KEYS: sizes, ends. ARGV: name, size, ttl in ms, most entries, most bytes
-- Returns size and end of what it had, each '' where it had nothing; 0: no room.
local now = now_ms()
forget_dead(KEYS[1], KEYS[2], now)
if not has_room(KEYS[1], KEYS[2], ARGV[1], ARGV[2], tonumber(ARGV[4]), tonumber(ARGV[5])) then
  return 0
end
local size, ends_at = redis.call('HGET', KEYS[1], ARGV[1]), redis.call('ZSCORE', KEYS[2], ARGV[1])
enter(KEYS[1], KEYS[2], ARGV[1], ARGV[2], now + ARGV[3])
return {size or '', ends_at or ''}
""",
)
"""Makes room in a ledger that is of another slot than the entry."""

RESTORE: Final = _script(
    _LEDGER,
    """
-- KEYS: sizes, ends. ARGV: name, size, end; or name alone: it has nothing
if ARGV[2] and tonumber(ARGV[3]) > now_ms() then
  enter(KEYS[1], KEYS[2], ARGV[1], ARGV[2], tonumber(ARGV[3]))
else
  leave(KEYS[1], KEYS[2], ARGV[1])
end
return 1
""",
)
"""Puts back what a ledger said of an entry."""

ADMIT: Final = _script("""
-- KEYS: a list of instants in us for each window [, ledgers of anonymous names]
-- ARGV: capacity, period in us and place of the ledger (0: none) of each window; most names in a
-- ledger; number of windows
-- Returns the instant: admitted; {place of the window that has room last, wait in us}; -1: no room.
local t = redis.call('TIME')
local now = t[1] * 1000000 + t[2]
local windows, most = tonumber(ARGV[#ARGV]), tonumber(ARGV[#ARGV - 1])
local youngest = {}
for i = 1, windows do
  youngest[i] = tonumber(redis.call('LINDEX', KEYS[i], -1))
  if youngest[i] and youngest[i] > now then
    -- The clock was set back. What comes now is not before what was; but by more than a period
    -- it would be refused for as long as the clock was wrong.
    if youngest[i] - now > tonumber(ARGV[3 * i - 1]) then
      redis.call('DEL', KEYS[i])
      youngest[i] = nil
    else
      now = youngest[i]
    end
  end
end
local longest, refusing = 0, -1
for i = 1, windows do
  if youngest[i] then
    local decides = tonumber(redis.call('LINDEX', KEYS[i], '-' .. ARGV[3 * i - 2]))
    if decides then
      local wait = ARGV[3 * i - 1] - (now - decides)
      if wait > longest then longest, refusing = wait, i - 1 end
    end
  end
end
if refusing >= 0 then return {refusing, longest} end
local now_text, new = string.format('%.0f', now), {}
for i = 1, windows do
  local place = tonumber(ARGV[3 * i])
  if place > 0 and not youngest[i] then
    local ledger = KEYS[place]
    if not new[ledger] then
      redis.call('ZREMRANGEBYSCORE', ledger, '-inf', now_text)
      new[ledger] = redis.call('ZCARD', ledger)
    end
    new[ledger] = new[ledger] + 1
    if new[ledger] > most then return -1 end
  end
end
for i = 1, windows do
  local key, period, place = KEYS[i], ARGV[3 * i - 1], tonumber(ARGV[3 * i])
  redis.call('RPUSH', key, now_text)
  -- Those that count no longer: more go than come, and never many at once.
  for _ = 1, 2 do
    local oldest = redis.call('LINDEX', key, 0)
    if now - oldest < tonumber(period) then break end
    redis.call('LPOP', key)
  end
  local ttl = math.ceil(period / 1000) + 1
  redis.call('PEXPIRE', key, ttl)
  if place > 0 then
    local ledger = KEYS[place]
    redis.call('ZADD', ledger, string.format('%.0f', now + period), key)
    if redis.call('PTTL', ledger) < ttl then redis.call('PEXPIRE', ledger, ttl) end
  end
end
return now
""")
"""Counts one admission under each window, or under none."""

DISMISS: Final = _script("""
-- KEYS: lists. ARGV: the instant of an admission
for _, key in ipairs(KEYS) do redis.call('LREM', key, -1, ARGV[1]) end
return 1
""")
"""Takes an admission back, because a window in another slot had no room."""
