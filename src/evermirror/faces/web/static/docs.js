// Lists what /openapi.json says: each operation with its parameters, body and answers.
const make = (tag, text) => {
  const made = document.createElement(tag);
  if (text !== undefined) made.textContent = text;
  return made;
};
const shape = (schema) => JSON.stringify(schema ?? {}, null, 2);

function operation(method, path, op) {
  const box = make("details");
  const summary = make("summary");
  summary.append(make("b", method.toUpperCase()), make("code", path), make("span", ` ${op.summary ?? ""}`));
  box.append(summary);
  if (op.description) box.append(make("p", op.description.replaceAll("`", "")));
  for (const p of op.parameters ?? []) {
    box.append(make("p", `${p.in} ${p.name}${p.required ? "" : "?"}: ${p.description ?? ""} ${JSON.stringify(p.schema)}`));
  }
  const body = op.requestBody?.content?.["application/json"]?.schema;
  if (body) box.append(make("p", "Body"), make("pre", shape(body)));
  for (const [status, answer] of Object.entries(op.responses)) {
    box.append(make("p", `${status} ${answer.description}`));
    for (const [type, content] of Object.entries(answer.content ?? {})) {
      box.append(make("pre", `${type}\n${shape(content.schema)}`));
    }
  }
  return box;
}

const doc = await (await fetch("/openapi.json")).json();
const place = document.getElementById("reference");
for (const paragraph of doc.info.description.split("\n\n")) place.append(make("p", paragraph.replaceAll("`", "")));
for (const [path, item] of Object.entries(doc.paths)) {
  for (const [method, op] of Object.entries(item)) place.append(operation(method, path, op));
}
place.append(make("h2", "Schemas"));
for (const [name, schema] of Object.entries(doc.components.schemas)) {
  const box = make("details");
  box.append(make("summary", name), make("pre", shape(schema)));
  place.append(box);
}
