# Steps as rules may take them: by address, by ticket, as a file in another format; and one that goes when it is done.
storage fb:
    provider="forebay"


FLOW = "forebay://wf/flow"


def run(program):
    return f"{config['python']} {config['programs']}/{program}"


rule all:
    input:
        expand("{form}.txt", form=["ticket", "shown", "h5", "bp5"]),
        storage.fb(expand("forebay://wf/files/sum-{step}.txt", step=[0, 5])),
        "gone.txt",


rule simulate:
    output:
        storage.fb(FLOW, retrieve=False),
        storage.fb(expand(FLOW + "@{step}", step=[0, 1, 5]), retrieve=False),
        storage.fb(FLOW + "@2?format=h5", retrieve=False),
        storage.fb(FLOW + "@3?format=bp5", retrieve=False),
        storage.fb(temp(FLOW + "@4"), retrieve=False),
    shell:
        run("simulate.py") + " wf/flow"


rule by_address:
    input:
        storage.fb(FLOW + "@{step}", retrieve=False),
    output:
        storage.fb("forebay://wf/files/sum-{step,\\d+}.txt"),
    shell:
        run("analyse.py") + " {input} > {output}"


rule by_ticket:
    input:
        storage.fb(FLOW + "@1"),
    output:
        "ticket.txt",
    shell:
        run("analyse.py") + " {input} > {output}"


rule by_ticket_of_a_stream:
    input:
        storage.fb(FLOW),
    output:
        "shown.txt",
    shell:
        "{config[python]} -m forebay show {input} > {output}"


rule as_hdf5:
    input:
        storage.fb(FLOW + "@2?format=h5"),
    output:
        "h5.txt",
    shell:
        run("sum_hdf5.py") + " {input} > {output}"


rule as_bp5:
    input:
        storage.fb(FLOW + "@3?format=bp5"),
    output:
        "bp5.txt",
    shell:
        run("sum_bp5.py") + " {input} > {output}"


rule that_is_the_last_to_need_a_step:
    input:
        storage.fb(FLOW + "@4", retrieve=False),
    output:
        "gone.txt",
    shell:
        run("analyse.py") + " {input} > {output}"
