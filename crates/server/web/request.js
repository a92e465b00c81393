// What the page sends: a conversation and its settings as the body of a chat request. Knows no page; settings that cannot be
// used are a `BadSetting`.

import { isEmpty } from './chats.js';
import { Failure } from './api.js';

export const SAMPLING = ['temperature', 'top_p', 'top_k', 'min_p', 'max_tokens', 'seed'];

/** A setting that cannot be sent. */
export class BadSetting extends Failure {}

/** The body for the next answer; `hasTools` says whether the server takes tools. */
export function requestOf({ messages, settings }, model, hasTools) {
  const { system, format, tool_choice } = settings;
  const body = { model, messages: wire(messages), stream: true, stream_options: { include_usage: true } };
  if (system.trim()) body.messages.unshift({ role: 'system', content: system });
  for (const name of SAMPLING) if (settings[name]) body[name] = Number(settings[name]);
  if (format === 'json') body.response_format = { type: 'json_object' };
  if (format === 'schema') body.response_format = { type: 'json_schema', json_schema: { name: 'answer', strict: true, schema: parsed(checkSchema, settings.schema, 'JSON Schema') } };
  const tools = hasTools ? parsed(checkTools, settings.tools, 'list of tools') : [];
  if (tools.length) Object.assign(body, { tools, tool_choice });
  return body;
}

/** The messages as the interface wants them. A question that got no answer is not sent again. */
function wire(messages) {
  const out = [];
  messages.forEach((message, i) => {
    if (message.role !== 'assistant' || !isEmpty(message)) out.push(wireMessage(message));
    else if (i + 1 < messages.length && out.at(-1)?.role === 'user') out.pop();
  });
  return out;
}

function wireMessage({ role, content, tool_calls, tool_call_id }) {
  return { role, content: content || (tool_calls ? null : ''), tool_calls, tool_call_id };
}

/** A schema from its text; throws what is wrong with it, as does `checkTools`. */
export function checkSchema(text) {
  const schema = JSON.parse(text);
  if (schema?.constructor !== Object) throw new Error('an object is expected');
  return schema;
}

export function checkTools(text) {
  if (!text.trim()) return [];
  const tools = [JSON.parse(text)].flat();
  return tools.map((tool) => {
    const given = tool?.function ?? tool;
    if (typeof given?.name !== 'string') throw new Error('every tool needs a "name"');
    return { type: 'function', function: given };
  });
}

function parsed(check, text, what) {
  try { return check(text); } catch (error) { throw new BadSetting(`The ${what} cannot be used: ${error.message}`); }
}
