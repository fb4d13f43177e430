import sys, time, tempfile, traceback
from pathlib import Path
from tests.servers.redis import Redis
from tests.simulation.redis import Server
from tests.simulation.seams import seams
from tests.simulation.world import World
n=int(sys.argv[1]); 
with tempfile.TemporaryDirectory() as f, Redis(Path(f)) as r:
    s=Server(r._port)
    holder=[None]
    with seams(lambda: holder[0]):
        t=time.time()
        import asyncio
        for seed in range(n):
            w=holder[0]=World(seed,s, print if n==1 else None)
            asyncio._set_running_loop(w.loop)
            w.run()
            if w.failures: print(seed,w.failures)
            w.close()
            asyncio._set_running_loop(None)
        print(n/(time.time()-t)*60)
