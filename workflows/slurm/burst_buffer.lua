-- SPDX-License-Identifier: Apache-2.0
-- For a Slurm whose build lacks the plugin burst_buffer/datawarp: the hooks of burst_buffer/lua, each of them one call
-- of dw_wlm_cli. Copy this file beside slurm.conf and write the program's path below (docs/operations/slurm.md).
-- The hooks take the arguments of Slurm 22.05, 23.02 and 24.05 and later; what a release does not pass is nil.

local PROGRAM = "/path/to/dw_wlm_cli"

-- slurmctld itself runs job_process, pools and paths, so they end well before MessageTimeout (10 s).
local SECONDS_LOCKED = 4
-- Slurm ends the other hooks itself, by the timeouts of burst_buffer.conf.
local SECONDS_MAX = 172800

local unpack = unpack or table.unpack -- Lua 5.1, and later ones

local function quoted(text)
  return "'" .. string.gsub(tostring(text), "'", "'\\''") .. "'"
end

-- Runs a program; returns whether it succeeded, and what it printed.
local function run(seconds, program, ...)
  local words = { "exec timeout --kill-after=1", seconds, quoted(program) }
  for _, word in ipairs({ ... }) do
    words[#words + 1] = quoted(word)
  end
  -- Lua 5.1 does not tell how a program ended.
  local pipe = io.popen("(" .. table.concat(words, " ") .. ") 2>&1 </dev/null; echo \"status $?\"", "r")
  if pipe == nil then
    return false, "forebay: " .. program .. " cannot be started"
  end
  local printed = pipe:read("*a") or ""
  pipe:close()
  local text, status = string.match(printed, "^(.*)status (%d+)\n$")
  if status == "124" or status == "137" then
    return false, text .. "forebay: no answer within " .. seconds .. " s"
  end
  return status == "0", text or printed
end

local function answer(succeeded, text)
  if succeeded then
    return slurm.SUCCESS, text
  end
  slurm.log_info("forebay: %s", text)
  return slurm.ERROR, text
end

local function call(seconds, name, ...)
  return answer(run(seconds, PROGRAM, "--function", name, ...))
end

function slurm_bb_job_process(job_script, uid, gid, job_info)
  return call(SECONDS_LOCKED, "job_process", "--job", job_script)
end

function slurm_bb_pools()
  return call(SECONDS_LOCKED, "pools")
end

function slurm_bb_job_teardown(job_id, job_script, hurry, uid, gid)
  -- A token that is not known any more has nothing left to tear down.
  local words = { "--token", job_id, "--job", job_script }
  if tostring(hurry) == "true" then
    words[#words + 1] = "--hurry"
  end
  return call(SECONDS_MAX, "teardown", unpack(words))
end

function slurm_bb_setup(job_id, uid, gid, pool, bb_size, job_script, job_info)
  -- A job with `persistentdw` alone has neither: Slurm writes "(null)".
  local capacity = (string.match(pool or "", "^[^(]+$") or "") .. ":" .. (string.match(tostring(bb_size), "^%d+$") or "0")
  return call(SECONDS_MAX, "setup", "--token", job_id, "--caller", "SLURM", "--user", uid, "--groupid", gid,
    "--capacity", capacity, "--job", job_script)
end

function slurm_bb_data_in(job_id, job_script, uid, gid, job_info)
  return call(SECONDS_MAX, "data_in", "--token", job_id, "--job", job_script)
end

-- Slurm 24.05 and later ask whether a stage is under way; ours is over when data_in has returned.
function slurm_bb_test_data_in(job_id, job_script, uid, gid, job_info)
  return slurm.SUCCESS, ""
end

function slurm_bb_real_size(job_id, uid, gid)
  local succeeded, text = run(SECONDS_MAX, PROGRAM, "--function", "real_size", "--token", job_id)
  return answer(succeeded, succeeded and string.match(text, '"capacity": *(%d+)') or text)
end

function slurm_bb_paths(job_id, job_script, path_file, uid, gid, job_info)
  return call(SECONDS_LOCKED, "paths", "--job", job_script, "--token", job_id, "--pathfile", path_file)
end

function slurm_bb_pre_run(job_id, job_script, uid, gid, job_info)
  return call(SECONDS_MAX, "pre_run", "--token", job_id, "--job", job_script)
end

function slurm_bb_post_run(job_id, job_script, uid, gid, job_info)
  return call(SECONDS_MAX, "post_run", "--token", job_id, "--job", job_script)
end

function slurm_bb_data_out(job_id, job_script, uid, gid, job_info)
  return call(SECONDS_MAX, "data_out", "--token", job_id, "--job", job_script)
end

function slurm_bb_test_data_out(job_id, job_script, uid, gid, job_info)
  return slurm.SUCCESS, ""
end

-- 22.05 passes what the user wrote; later releases pass the user's uid and gid before that.
function slurm_bb_get_status(...)
  local words = {}
  for _, word in ipairs({ ... }) do
    if not string.match(tostring(word), "^%d+$") then
      words[#words + 1] = word
    end
  end
  local program = string.gsub(PROGRAM, "dw_wlm_cli$", "dwstat")
  return answer(run(SECONDS_LOCKED, program, unpack(words)))
end
