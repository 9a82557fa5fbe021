! SPDX-License-Identifier: Apache-2.0
! The same program in Fortran.
!   mpiexec -n 2 ./flow_fortran adios2.xml
program flow
  use mpi
  use adios2
  implicit none
  integer, parameter :: cells = 4
  type(adios2_adios) :: adios
  type(adios2_io) :: io
  type(adios2_variable) :: variable
  type(adios2_engine) :: engine
  integer(kind=8), dimension(1) :: shape_dims, start_dims, count_dims
  real(kind=8), dimension(cells) :: values
  character(len=1024) :: configuration
  integer :: error, rank, ranks, step, cell

  call MPI_Init(error)
  call MPI_Comm_rank(MPI_COMM_WORLD, rank, error)
  call MPI_Comm_size(MPI_COMM_WORLD, ranks, error)
  configuration = "adios2.xml"
  if (command_argument_count() > 0) call get_command_argument(1, configuration)
  shape_dims(1) = ranks * cells
  start_dims(1) = rank * cells
  count_dims(1) = cells
  call adios2_init(adios, trim(configuration), MPI_COMM_WORLD, error)
  call adios2_declare_io(io, adios, "simulation", error)
  call adios2_define_variable(variable, io, "T", adios2_type_dp, 1, shape_dims, start_dims, count_dims, &
                              adios2_constant_dims, error)
  call adios2_open(engine, io, "flow.bp", adios2_mode_write, error)
  call stop_on(error)
  do step = 0, 4
    do cell = 1, cells
      values(cell) = 100.0d0 * step + start_dims(1) + cell - 1
    end do
    call adios2_begin_step(engine, adios2_step_mode_append, error)
    call stop_on(error)
    call adios2_put(engine, variable, values, adios2_mode_sync, error)
    call stop_on(error)
    call adios2_end_step(engine, error)
    call stop_on(error)
  end do
  call adios2_close(engine, error)
  call adios2_finalize(adios, error)
  call MPI_Finalize(error)

contains

  subroutine stop_on(error)
    integer, intent(in) :: error
    integer :: ignored
    if (error /= 0) call MPI_Abort(MPI_COMM_WORLD, 1, ignored)
  end subroutine stop_on
end program flow
