"The records of the plan: read, and named by a hash that changes with any value in them."
import json, tomllib
from hashlib import blake2b
from pathlib import Path

HERE = Path(__file__).parent

def read(name:str)->dict:
    "A file of records beside this one, `claims.toml`."
    return tomllib.loads((HERE/name).read_text('utf-8'))

def record_hash(record:dict)->str:
    "16 hexadecimal digits of a record's canonical JSON; 3 and 3.0 are two values."
    text = json.dumps(record, sort_keys=True, separators=(',', ':'), ensure_ascii=False)
    return blake2b(text.encode(), digest_size=8).hexdigest()
